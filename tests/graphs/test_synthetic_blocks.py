from pathlib import Path

import numpy as np
import pytest
import torch

from gistgnn.graphs import DATASETS, Graph, find, load
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.synthetic import weighted_place
from gistgnn.graphs.synthetic_blocks import RECIPE, ROWS, TEST, Blocks
from tests.helpers.refusals import refused

from .samples import assert_equal

NAME = "synthetic:papers100m@0.001"


def blocks(name: str = NAME) -> Blocks:
    info = find(name)
    assert info
    return Blocks(info)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GISTGNN_CACHE", str(tmp_path_factory.mktemp("synthetic")))
        return load(NAME)


@pytest.mark.parametrize("name", [NAME, "synthetic:papers100m@0.00004"])
def test_a_fraction_has_exactly_its_counts(name: str) -> None:
    graph, info = load(name), find(name)
    assert info
    assert (graph.name, graph.num_nodes, graph.num_edges) == (info.name, info.nodes, info.edges)
    assert (graph.num_features, graph.num_classes) == (128, 172)
    assert int(graph.train.sum()) == info.train
    assert int(graph.val.sum()) == round(info.nodes / RECIPE.nodes * RECIPE.val)
    assert int(graph.test.sum()) == round(info.nodes / RECIPE.nodes * TEST)
    labelled = graph.train | graph.val | graph.test
    assert torch.equal(labelled, graph.y >= 0)
    source, target = graph.edge_index
    key, reverse = target * graph.num_nodes + source, source * graph.num_nodes + target
    assert (key.diff() > 0).all()
    assert torch.equal(reverse.sort().values, key)
    assert not (source == target).any()


def test_the_sizes_are_those_of_papers100m() -> None:
    info = DATASETS["synthetic:papers100m"]
    assert (info.nodes, info.edges, info.train) == (RECIPE.nodes, 1_615_685_872, RECIPE.train)
    whole = Blocks(info)
    assert sum(sum(whole._counts(group)) for group in range(whole.groups)) == info.edges // 2
    with refused("synthetic:papers100m in memory (convert it to a folder) takes"):
        load("synthetic:papers100m")


def test_a_folder_has_the_same_graph_as_memory(graph: Graph, tmp_path: Path) -> None:
    convert(NAME, tmp_path / "made")
    made = load(tmp_path / "made")
    assert_equal(made, graph)
    assert made.name == NAME


def test_the_draw_is_pinned(graph: Graph) -> None:
    """A different graph with the same name invalidates recorded results: change ``VERSION`` with these numbers."""
    assert graph.checksum() == 3220227421
    assert graph.x.double().sum().item() == pytest.approx(178188.04037856252, rel=1e-9)


def test_any_block_is_made_alone() -> None:
    first, again = blocks(), blocks()
    for group in (first.groups - 1, 0):
        for one, other in zip(first.edges(group), again.edges(group), strict=True):
            assert np.array_equal(one, other)
    for block in (1, 0):
        for one, other in zip(first.nodes(block), again.nodes(block), strict=True):
            assert np.array_equal(one, other)
    assert len(first.nodes(first.node_blocks - 1)[0]) == first.info.nodes - (first.node_blocks - 1) * ROWS


def test_places_and_numbers_are_one_to_one() -> None:
    made = blocks()
    numbers = made._number(np.arange(made.info.nodes))
    assert np.array_equal(np.sort(numbers), np.arange(made.info.nodes))
    assert np.array_equal(made._place(numbers), np.arange(made.info.nodes))
    assert np.abs(np.diff(numbers)).min() > made.info.nodes // 3  # neighbours by place are far apart


@pytest.mark.parametrize("cap", [8.0, 1000.0])
def test_places_are_drawn_by_weight(cap: float) -> None:
    """The density at place r is proportional to min(r^(-7/11), cap)."""
    drawn = weighted_place(np.random.default_rng(0).random(400_000), cap)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    edges = np.linspace(0, 1, 11)
    fine = (np.arange(1_000_000) + 0.5) / 1_000_000
    weight = np.minimum(fine ** (-7 / 11), cap)
    expected = weight.reshape(10, -1).sum(axis=1) / weight.sum()
    assert np.allclose(np.histogram(drawn, edges)[0] / len(drawn), expected, atol=0.003)


def test_edges_stay_in_communities_as_the_recipe_says(graph: Graph) -> None:
    made = blocks()
    source, target = (made._place(end.numpy()) for end in graph.edge_index)
    ends = [np.searchsorted(made.bounds, end, "right") - 1 for end in (source, target)]
    inside = (ends[0] == ends[1]).mean()
    groups = ends[0] // RECIPE.group == ends[1] // RECIPE.group
    assert inside == pytest.approx(RECIPE.inside, abs=0.01)
    assert groups.mean() == pytest.approx(RECIPE.inside + RECIPE.nearby, abs=0.01)


def test_degrees_fall_as_a_power_and_labels_follow_communities(graph: Graph) -> None:
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).double()
    assert degrees.mean() == pytest.approx(14.55, abs=0.01)
    assert degrees.max() > 20 * degrees.mean()
    made = blocks()
    community = np.searchsorted(made.bounds, made._place(np.arange(graph.num_nodes)), "right") - 1
    labelled = (graph.y >= 0).numpy()
    right = made._classes[community[labelled]] == graph.y.numpy()[labelled]
    assert right.mean() == pytest.approx(1 - RECIPE.mislabelled, abs=0.02)
