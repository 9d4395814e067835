"""Synthetic graphs: their counts, their structure, and that they never change."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gistgnn.graphs import DATASETS, Graph, find, load, synthetic
from gistgnn.graphs.clustering import cluster
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.synthetic import power_law
from gistgnn.graphs.synthetic_blocks import RECIPE, ROWS, TEST, Blocks
from tests.helpers.flips import flipped
from tests.helpers.refusals import refused

from .samples import assert_equal

SMALL, PAPERS = "synthetic:amazon2m@0.002", "synthetic:papers100m@0.001"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GISTGNN_CACHE", str(tmp_path_factory.mktemp("synthetic")))
        return {name: load(name) for name in (SMALL, PAPERS)}


@pytest.fixture
def small(drawn: dict[str, Graph]) -> Graph:
    return drawn[SMALL]


@pytest.fixture
def papers(drawn: dict[str, Graph]) -> Graph:
    return drawn[PAPERS]


@pytest.fixture
def blocks() -> Blocks:
    info = find(PAPERS)
    assert info
    return Blocks(info)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "splits"),
    [
        (SMALL, 4_898, 123_718, (3341, 79, 1478)),
        ("synthetic:reddit@0.00352", 820, 40_856, (540, 84, 196)),
        ("synthetic:reddit@0.02", 4_659, 232_138, (3068, 477, 1114)),
        (PAPERS, 111_060, 807_843, (1207, round(111_060 / RECIPE.nodes * RECIPE.val), 214)),
        ("synthetic:papers100m@4e-05", 4_442, 32_314, (48, 5, 9)),
    ],
)
def test_a_fraction_has_exactly_its_counts(name: str, nodes: int, edges: int, splits: tuple[int, ...]) -> None:
    graph, whole = load(name), DATASETS[name.split("@")[0]]
    assert (graph.name, graph.num_nodes, graph.num_edges) == (name, nodes, 2 * edges)
    assert (graph.num_features, graph.num_classes) == (whole.features, whole.classes)
    assert tuple(int(mask.sum()) for mask in (graph.train, graph.val, graph.test)) == splits
    assert torch.equal(graph.train | graph.val | graph.test, graph.y >= 0)
    if "papers" not in name:
        assert sum(splits) == nodes
        assert torch.bincount(graph.y, minlength=whole.classes).min() > 0
    source, target = graph.edge_index
    key, reverse = target * nodes + source, source * nodes + target
    assert (key.diff() > 0).all()  # sorted by (target, source), no duplicates
    assert torch.equal(reverse.sort().values, key)
    assert not (source == target).any()


def test_the_whole_graphs() -> None:
    whole = find("Synthetic:Reddit@1.0")
    assert whole is not None
    assert (whole.name, whole.nodes, whole.edges) == ("synthetic:reddit", 232_965, 2 * 11_606_919)
    for name, splits in {
        "synthetic:reddit": (153_431, 23_831, 55_703),
        "synthetic:amazon2m": (1_709_997 - 39_323, 39_323, 739_032),
    }.items():
        recipe, nodes = synthetic.RECIPES[name], DATASETS[name].nodes
        assert (recipe.nodes, recipe.train, recipe.val) == (nodes, *splits[:2])
        assert nodes - recipe.train - recipe.val == splits[2]
    info = DATASETS["synthetic:papers100m"]
    assert (info.nodes, info.edges, info.train, TEST) == (RECIPE.nodes, 1_615_685_872, RECIPE.train, 214_338)
    blocks = Blocks(info)
    assert sum(sum(blocks._counts(group)) for group in range(blocks.groups)) == info.edges // 2
    with refused("synthetic:papers100m in memory (convert it to a folder) takes"):
        load("synthetic:papers100m")


def test_the_draw_is_pinned(small: Graph, papers: Graph) -> None:
    """A different graph with the same name invalidates recorded results: change the versions with these numbers."""
    assert small.checksum() == 885939104  # of edges, labels and splits
    assert torch.allclose(small.x[0, :3], torch.tensor([-1.4371, -0.4598, 0.0663]), atol=1e-4)
    assert papers.checksum() == 2275624799
    assert papers.x.double().sum().item() == pytest.approx(178188.04037856252, rel=1e-9)


def test_it_is_drawn_once(small: Graph, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = load("SYNTHETIC:Amazon2M@2e-3")
    assert_equal(again, small)
    assert again.name == SMALL
    (file,) = cache_folder.iterdir()
    assert file.name.startswith("synthetic-amazon2m@0.002-")  # no colon
    with monkeypatch.context() as patch:
        patch.setattr(synthetic, "draw", None)
        assert_equal(load(SMALL), small)
    recipe = synthetic.RECIPES["synthetic:amazon2m"]
    monkeypatch.setitem(synthetic.RECIPES, "synthetic:amazon2m", recipe.__class__(**{**vars(recipe), "noise": 0.5}))
    assert not torch.equal(load(SMALL).x, small.x)
    assert len(list(cache_folder.iterdir())) == 2


def test_a_damaged_cache_is_drawn_again(small: Graph, cache_folder: Path) -> None:
    load(SMALL)
    (file,) = cache_folder.glob("*/x.npy")
    whole = file.read_bytes()
    for keep in (0, 1000, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:keep])
        assert_equal(load(SMALL), small)
        assert file.read_bytes() == whole
    for name in ("col", "rowptr"):
        with flipped(file.with_name(f"{name}.npy"), 200):
            assert_equal(load(SMALL), small)


def test_degrees_have_a_heavy_tail(small: Graph, papers: Graph) -> None:
    weights = power_law(np.random.default_rng(0), 1_000_000, cap=1000.0)
    assert (weights.min() >= 1, weights.max()) == (True, 1000)
    for at in (2.0, 10.0, 100.0):
        assert (weights > at).mean() == pytest.approx(at**-1.6, rel=0.1)
    for graph, most in ((small, 10), (papers, 20)):
        degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).double()
        assert degrees.max() > most * degrees.mean()
        assert degrees.median() < 0.9 * degrees.mean()


def test_edges_stay_in_communities_and_numbers_are_shuffled(small: Graph) -> None:
    source, target = small.edge_index
    assert 0.5 < (small.y[source] == small.y[target]).double().mean() < 0.9
    assert (source - target).abs().double().mean() == pytest.approx(small.num_nodes / 3, rel=0.1)
    clusters = cluster(small.edge_index, small.num_nodes, 65)
    assert clusters.kept_edges(small.edges) > 0.5


def test_blocks_follow_the_recipe(papers: Graph, blocks: Blocks) -> None:
    ends = [np.searchsorted(blocks.bounds, blocks._place(end.numpy()), "right") - 1 for end in papers.edge_index]
    assert (ends[0] == ends[1]).mean() == pytest.approx(RECIPE.inside, abs=0.01)
    groups = ends[0] // RECIPE.group == ends[1] // RECIPE.group
    assert groups.mean() == pytest.approx(RECIPE.inside + RECIPE.nearby, abs=0.01)
    community = np.searchsorted(blocks.bounds, blocks._place(np.arange(papers.num_nodes)), "right") - 1
    labelled = (papers.y >= 0).numpy()
    right = blocks._classes[community[labelled]] == papers.y.numpy()[labelled]
    assert right.mean() == pytest.approx(1 - RECIPE.mislabelled, abs=0.02)


def test_any_block_is_made_alone(papers: Graph, blocks: Blocks, tmp_path: Path) -> None:
    again = Blocks(blocks.info)
    for number in (1, 0):
        pairs = [*zip(blocks.nodes(number), again.nodes(number), strict=True)]
        pairs += zip(blocks.group_edges(number), again.group_edges(number), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)
    assert sum(len(x) for x, _, _ in blocks.node_blocks()) == blocks.info.nodes > ROWS
    numbers = blocks._number(np.arange(blocks.info.nodes))
    assert np.array_equal(np.sort(numbers), np.arange(blocks.info.nodes))
    assert np.array_equal(blocks._place(numbers), np.arange(blocks.info.nodes))
    assert np.abs(np.diff(numbers)).min() > blocks.info.nodes // 3  # neighbours by place are far apart
    convert(PAPERS, tmp_path / "made")
    made = load(tmp_path / "made")
    assert_equal(made, papers)
    assert made.name == PAPERS


def test_bad_fractions() -> None:
    for text in ("0", "-0.1", "1.5", "nan", "inf", "", "half", "0.1@0.1", "10%"):
        with refused(f"synthetic:reddit@{text}: the fraction is {text!r}", "above 0, and at most 1"):
            load(f"synthetic:reddit@{text}")
    with refused("synthetic:reddit@0.001: 233 nodes are too few for 41 classes; expected at least 820", "0.0035"):
        load("synthetic:reddit@0.001")
    assert find("cora@0.5") is None  # real graphs have no fractions
