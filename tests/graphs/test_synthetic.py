import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gistgnn import GIST
from gistgnn.graphs import DATASETS, Graph, find, load, synthetic
from gistgnn.graphs.clustering import cluster
from gistgnn.graphs.synthetic import Level, cumulate, draw_edges, power_law
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import ClusterSampling
from tests.helpers.commands import run_command
from tests.helpers.flips import flipped
from tests.helpers.logs import logged
from tests.helpers.refusals import refused

from .samples import assert_equal

SMALL = "synthetic:amazon2m@0.002"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GISTGNN_CACHE", str(tmp_path_factory.mktemp("synthetic")))
        return load(SMALL)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "splits"),
    [
        ("synthetic:amazon2m@0.002", 4_898, 123_718, (3341, 79, 1478)),
        ("synthetic:amazon2m@0.01", 24_490, 618_591, (16707, 393, 7390)),
        ("synthetic:reddit@0.004", 932, 46_428, (614, 95, 223)),
        ("synthetic:reddit@0.02", 4_659, 232_138, (3068, 477, 1114)),
    ],
)
def test_a_fraction_has_exactly_its_counts(name: str, nodes: int, edges: int, splits: tuple[int, ...]) -> None:
    graph, whole = load(name), DATASETS[name.split("@")[0]]
    assert graph.name == name
    assert (graph.num_nodes, graph.num_edges) == (nodes, 2 * edges)
    assert (graph.num_features, graph.num_classes) == (whole.features, whole.classes)
    assert tuple(int(mask.sum()) for mask in (graph.train, graph.val, graph.test)) == splits
    assert sum(splits) == nodes
    assert torch.bincount(graph.y, minlength=whole.classes).min() > 0
    source, target = graph.edge_index
    key, reverse = target * nodes + source, source * nodes + target
    assert (key.diff() > 0).all()  # sorted by (target, source), no duplicates
    assert torch.equal(reverse.sort().values, key)
    assert not (source == target).any()


def test_the_smallest_and_the_whole() -> None:
    graph = load("synthetic:reddit@0.00352")
    assert graph.num_nodes == 820
    assert graph.y.unique().numel() == 41
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


def test_it_is_the_same_graph_every_time(small: Graph, cache_folder: Path) -> None:
    again = load("SYNTHETIC:Amazon2M@2e-3")
    assert_equal(again, small)
    assert again.name == SMALL
    (file,) = cache_folder.iterdir()
    assert file.name.startswith("synthetic-amazon2m@0.002-")  # no colon
    assert small.checksum() != load("synthetic:amazon2m@0.0021").checksum()


def test_the_draw_is_pinned(small: Graph) -> None:
    """A different graph with the same name invalidates recorded results: change ``_VERSION`` with these numbers."""
    assert small.checksum() == 1498280178  # of edges, labels and splits
    assert torch.allclose(small.x[0, :3], torch.tensor([-1.4371, -0.4598, 0.0663]), atol=1e-4)


def test_degrees_have_a_heavy_tail(small: Graph) -> None:
    degrees = torch.bincount(small.edge_index[1], minlength=small.num_nodes).double()
    assert degrees.max() > 10 * degrees.mean()
    assert degrees.median() < 0.9 * degrees.mean()
    assert degrees.min() > 0


def test_weights_follow_the_power_law() -> None:
    weights = power_law(np.random.default_rng(0), 1_000_000, cap=1000.0)
    assert weights.min() >= 1
    assert weights.max() == 1000
    for at in (2.0, 10.0, 100.0):
        assert (weights > at).mean() == pytest.approx(at**-1.6, rel=0.1)


def test_edges_stay_in_communities_and_numbers_are_shuffled(small: Graph) -> None:
    source, target = small.edge_index
    assert 0.5 < (small.y[source] == small.y[target]).double().mean() < 0.9
    assert (source - target).abs().double().mean() == pytest.approx(small.num_nodes / 3, rel=0.1)
    clusters = cluster(small.edge_index, small.num_nodes, 65)
    assert clusters.kept_edges(small.edges) > 0.5


def _linear_accuracy(graph: Graph) -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(graph.num_features, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(model(graph.x[graph.train]), graph.y[graph.train]).backward()
        optimizer.step()
    return float((model(graph.x).argmax(1) == graph.y)[graph.test].double().mean())


def _sage_accuracy(graph: Graph, width: int) -> float:
    def build(widths: tuple[int, ...]) -> GraphSAGE:
        return GraphSAGE(graph.num_features, widths, graph.num_classes, norm="layer")

    result = GIST(build, widths=(width,), sub_gcns=1).fit(
        graph, epochs=60, local_steps=30, lr=0.02, schedule="cosine", progress=False
    )
    assert result.test is not None
    return result.test["accuracy"]


def test_features_alone_do_not_decide_and_wide_models_do_better(small: Graph) -> None:
    linear, narrow, wide = _linear_accuracy(small), _sage_accuracy(small, 8), _sage_accuracy(small, 64)
    assert linear + 0.2 < wide  # measured: 0.65, 0.66, 0.94
    assert narrow + 0.2 < wide
    assert 0.85 < wide < 0.96  # six per cent have a random label


@pytest.mark.parametrize("text", ["0", "-0.1", "1.5", "nan", "inf", "", "half", "0.1@0.1", "10%"])
def test_bad_fractions(text: str) -> None:
    with refused(f"synthetic:reddit@{text}: the fraction is {text!r}", "above 0, and at most 1"):
        load(f"synthetic:reddit@{text}")


def test_too_small_fractions() -> None:
    with refused("synthetic:reddit@0.001: 233 nodes are too few for 41 classes; expected at least 820", "0.0035"):
        load("synthetic:reddit@0.001")
    with refused("synthetic:amazon2m@1e-9: 0 nodes are too few"):
        load("synthetic:amazon2m@1e-9")


@pytest.mark.parametrize("name", ["synthetic:redit", "synthetic:redit@0.1", "Synthetic:Reddit2@7"])
def test_unknown_names(name: str) -> None:
    with refused(f"'{name}' is neither a data set nor a file (did you mean synthetic:reddit?)"):
        load(name)


def test_real_graphs_have_no_fractions() -> None:
    assert find("cora@0.5") is None
    with refused("'cora@0.5' is neither a data set nor a file (did you mean cora?)"):
        load("cora@0.5")


@pytest.mark.parametrize("keep", [0, 1000, 0.5, 0.999])
def test_a_damaged_cache_is_drawn_again(small: Graph, cache_folder: Path, keep: float) -> None:
    load(SMALL)
    (file,) = cache_folder.glob("*/x.npy")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep if keep > 1 else keep * len(whole))])
    assert_equal(load(SMALL), small)
    assert file.read_bytes() == whole


def test_the_second_time_comes_from_the_cache(small: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    load(SMALL)
    monkeypatch.setattr(synthetic, "draw", None)
    assert_equal(load(SMALL), small)


def test_edges_take_four_bytes_each_also_while_a_model_trains(small: Graph) -> None:
    graph = load(SMALL)
    assert graph.edges.col.dtype == torch.int32
    gist = GIST(lambda w: GraphSAGE(graph.num_features, w, graph.num_classes), (8,), 2)
    sampler = ClusterSampling(20, method="random")
    gist.fit(graph, epochs=2, local_steps=2, sampler=sampler, inductive=True, progress=False)
    assert "edge_index" not in vars(graph)
    assert torch.equal(graph.edge_index, small.edge_index)


@pytest.mark.parametrize("name", ["col", "rowptr"])
def test_a_flipped_byte_in_the_cache_is_found(small: Graph, cache_folder: Path, name: str) -> None:
    load(SMALL)
    (file,) = cache_folder.glob(f"*/{name}.npy")
    with flipped(file, 200):
        assert_equal(load(SMALL), small)


def test_another_recipe_is_another_graph(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(SMALL)
    recipe = synthetic.RECIPES["synthetic:amazon2m"]
    monkeypatch.setitem(synthetic.RECIPES, "synthetic:amazon2m", recipe.__class__(**{**vars(recipe), "noise": 0.5}))
    assert not torch.equal(load(SMALL).x, first.x)
    assert len(list(cache_folder.iterdir())) == 2


def test_a_long_wait_is_announced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with logged() as notes:
        load(SMALL)
        assert notes == []
        monkeypatch.setattr(synthetic, "_LARGE", 0)
        load("synthetic:amazon2m@0.003")
    assert "drawing synthetic:amazon2m@0.003: 7,347 nodes and 185,577 edges" in notes[0]
    assert capsys.readouterr().out == ""


def test_a_nearly_full_community_does_not_stop_the_draw() -> None:
    """30 nodes have 435 pairs; the inner level has only 3 · 45 pairs, fewer than the 300 edges."""
    cumulated = cumulate(np.ones(30))
    levels = [Level(0.9, np.array([0, 10, 20, 30]), cumulated), Level(0.1, np.array([0, 30]), cumulated)]
    low, high = draw_edges(np.random.default_rng(0), levels, 300)
    assert len(low) == 300
    assert (low < high).all()
    assert len({*zip(low.tolist(), high.tolist(), strict=True)}) == 300
    assert (low // 10 == high // 10).sum() == 135


def test_nodes_are_drawn_by_weight_within_their_part() -> None:
    cumulated = cumulate(np.array([1.0, 3.0] * 500))
    low, high = draw_edges(np.random.default_rng(0), [Level(1.0, np.array([0, 500, 1000]), cumulated)], 5000)
    assert ((low < 500) == (high < 500)).all()
    assert np.mean(np.concatenate([low, high]) % 2) == pytest.approx(0.75, abs=0.02)


def test_the_command_line(tmp_path: Path) -> None:
    done = run_command(tmp_path, "datasets", "synthetic:reddit@0.01", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts.pop("about").startswith("random, in the size of Reddit")
    assert facts == {
        "name": "synthetic:reddit@0.01",
        "nodes": 2330,
        "edges": 2 * 116_069,
        "features": 602,
        "classes": 41,
        "task": "single-label",
        "train": 1535,
        "val": 238,
        "test": 557,
        "split": "random with a fixed seed (65.9 % train, 10.2 % val, 23.9 % test)",
    }
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_run_is_named_after_the_fraction(tmp_path: Path) -> None:
    done = run_command(tmp_path, "train", "--dataset", "synthetic:reddit@0.004", "--hidden", 4, "--epochs", 2)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("synthetic-reddit@0.004-")
