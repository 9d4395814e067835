"""Synthetic graphs: their counts, their structure, and that they never change."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gistgnn.graphs import DATASETS, Graph, find, load, synthetic
from gistgnn.graphs.clustering import cluster
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.synthetic_blocks import RECIPE, ROWS, Blocks
from gistgnn.utils.tensors import digest_of
from tests.helpers.flips import flipped
from tests.helpers.refusals import refused

from .samples import assert_equal

SMALL = "synthetic:amazon2m@0.002"
PAPERS = "synthetic:papers100m@0.001"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GISTGNN_CACHE", str(tmp_path_factory.mktemp("synthetic")))
        return {name: load(name) for name in (SMALL, PAPERS)}


@pytest.fixture
def small(drawn: dict[str, Graph]) -> Graph:
    return drawn[SMALL]


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "splits"),
    [
        (SMALL, 4_898, 123_718, (3341, 79, 1478)),
        ("synthetic:reddit@0.02", 4_659, 232_138, (3068, 477, 1114)),
        (PAPERS, 111_060, 807_843, (1207, round(111_060 / RECIPE.nodes * RECIPE.val), 214)),
        ("synthetic:papers100m@4e-05", 4_442, 32_314, (48, 5, 9)),
    ],
)
def test_a_fraction_has_exactly_its_counts(
    name: str, nodes: int, edges: int, splits: tuple[int, ...]
) -> None:
    graph = load(name)
    info = DATASETS[name.split("@")[0]]
    assert (graph.name, graph.num_nodes, graph.num_edges) == (name, nodes, 2 * edges)
    assert (graph.num_features, graph.num_classes) == (info.features, info.classes)
    assert tuple(int(mask.sum()) for mask in (graph.train, graph.val, graph.test)) == splits
    assert torch.equal(graph.train | graph.val | graph.test, graph.y >= 0)
    if "papers" not in name:
        assert sum(splits) == nodes
        assert torch.bincount(graph.y, minlength=info.classes).min() > 0
    source, target = graph.edge_index
    key = target * nodes + source
    reverse = source * nodes + target
    assert (key.diff() > 0).all()  # sorted by (target, source), no duplicates
    assert torch.equal(reverse.sort().values, key)
    assert not (source == target).any()


def test_the_draw_is_pinned(drawn: dict[str, Graph]) -> None:
    """A different graph with the same name invalidates recorded results.

    Change the versions with these numbers.
    """
    small, papers = drawn.values()
    for graph, expected in (
        (small, "9cc568bed53d7f988cda664761c6dd42"),
        (papers, "f7f4ba9d764c7c66c01939117f5b9788"),
    ):
        digests = graph.digests()
        del digests["features"]
        assert digest_of(digests) == expected
    assert torch.allclose(small.x[0, :3], torch.tensor([-1.4371, -0.4598, 0.0663]), atol=1e-4)
    assert papers.x.double().sum().item() == pytest.approx(178188.04037856252, rel=1e-9)


def test_it_is_drawn_once(
    small: Graph, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = load("SYNTHETIC:Amazon2M@2e-3")
    assert_equal(again, small)
    assert again.name == SMALL
    (file,) = cache_folder.iterdir()
    assert file.name.startswith("synthetic-amazon2m@0.002-")  # no colon
    with monkeypatch.context() as patch:
        patch.setattr(synthetic, "draw", None)
        assert_equal(load(SMALL), small)
    recipe = synthetic.RECIPES["synthetic:amazon2m"]
    monkeypatch.setitem(synthetic.RECIPES, "synthetic:amazon2m", replace(recipe, spread=0.9))
    assert not torch.equal(load(SMALL).x, small.x)
    assert len(list(cache_folder.iterdir())) == 1  # the older one is gone


def test_a_damaged_cache_is_drawn_again(small: Graph, cache_folder: Path) -> None:
    load(SMALL)
    (file,) = cache_folder.glob("*/x.npy")
    content = file.read_bytes()
    for keep in (0, 1000, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:keep])
        assert_equal(load(SMALL), small)
        assert file.read_bytes() == content
    for name in ("col", "rowptr"):
        with flipped(file.with_name(f"{name}.npy"), 200):
            assert_equal(load(SMALL), small)


def test_degrees_have_a_heavy_tail_and_edges_stay_in_communities(drawn: dict[str, Graph]) -> None:
    small = drawn[SMALL]
    for graph, most in ((small, 10), (drawn[PAPERS], 20)):
        degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).double()
        assert degrees.max() > most * degrees.mean()
        assert degrees.median() < 0.9 * degrees.mean()
        # The numbers of the nodes are shuffled.
        assert graph.edge_index.diff(dim=0).abs().double().mean() > 0.25 * graph.num_nodes
    source, target = small.edge_index
    assert 0.5 < (small.y[source] == small.y[target]).double().mean() < 0.9
    assert cluster(small.edge_index, small.num_nodes, 65).kept_edges(small.edges) > 0.5


def test_a_graph_of_blocks_is_made_block_by_block(drawn: dict[str, Graph], tmp_path: Path) -> None:
    info = find(PAPERS)
    assert info
    assert sum(len(x) for x, _, _ in Blocks(info).node_blocks()) == info.nodes > ROWS
    convert(PAPERS, tmp_path / "made")
    made = load(tmp_path / "made")
    assert_equal(made, drawn[PAPERS])
    assert made.name == PAPERS


def test_bad_fractions_are_refused() -> None:
    for text in ("0", "-0.1", "1.5", "nan", "inf", "", "half", "0.1@0.1", "10%"):
        with refused(
            f"synthetic:reddit@{text}: the fraction is {text!r}", "above 0, and at most 1"
        ):
            load(f"synthetic:reddit@{text}")
    with refused(
        "synthetic:reddit@0.001",
        "233 nodes",
        "820",
        "0.0035",
    ):
        load("synthetic:reddit@0.001")
    assert find("cora@0.5") is None  # real graphs have no fractions
    full = find("Synthetic:Reddit@1.0")
    assert full == DATASETS["synthetic:reddit"]
    with refused("synthetic:papers100m", "convert"):
        load("synthetic:papers100m")
