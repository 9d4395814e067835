"""Batches that are unions of clusters, and the first layer's sums.

The sums are those of the whole graph if asked for.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import SAGEConv

from gistgnn import GIST
from gistgnn.graphs import Graph
from gistgnn.graphs.clustering import cluster
from gistgnn.nn.adjacency import Operator
from gistgnn.sampling import ClusterBatches, ClusterSampling, whole_graph
from tests.helpers.fitting import fit, same, theta
from tests.helpers.models import OURS, F, Stack, tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph(40)
WHOLE = whole_graph(GRAPH)


def sampler(q: int, count: int = 8, *, precompute: bool = False) -> ClusterBatches:
    return ClusterBatches(
        WHOLE, cluster(GRAPH.edge_index, 40, count, "random"), q, precompute=precompute
    )


@pytest.mark.parametrize("q", [1, 3, 8])
def test_a_batch_has_whole_clusters(q: int) -> None:
    assignment = cluster(GRAPH.edge_index, 40, 8, "random").assignment
    for batch in sampler(q).batches(0, 9):
        nodes = (batch.x[:, None] == GRAPH.x[None]).all(dim=2).nonzero()[:, 1]
        inside = torch.isin(assignment, assignment[nodes])
        assert torch.equal(nodes.sort().values, inside.nonzero().squeeze(1))


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("q", [1, 2, 3])
def test_a_batch_has_the_edges_inside_it(q: int, *, alone: bool) -> None:
    """With `alone` it has only those inside a cluster."""
    clusters = cluster(GRAPH.edge_index, 40, 8, "random")
    assignment = clusters.assignment
    sources, targets = GRAPH.edge_index
    for batch in ClusterBatches(WHOLE, clusters, q, precompute=False, alone=alone).batches(0, 9):
        nodes = (batch.x[:, None] == GRAPH.x[None]).all(dim=2).nonzero()[:, 1]
        is_inside = torch.isin(sources, nodes) & torch.isin(targets, nodes)
        if alone:
            is_inside &= assignment[sources] == assignment[targets]
        expected = GRAPH.edge_index[:, is_inside].T.tolist()
        assert sorted(nodes[batch.edge_index].T.tolist()) == sorted(expected)


def test_smaller_batches_are_of_the_same_clusters() -> None:
    usual = ClusterSampling(method="random").sampler(WHOLE, seed=0)
    smaller = usual.with_smaller_batches(4)
    assert smaller is not None
    assert usual.facts is not None
    sampling = ClusterSampling(usual.facts.clusters, usual.facts.clusters_per_batch // 4, "random")
    expected = sampling.sampler(WHOLE, seed=0)
    assert smaller.steps_per_epoch == expected.steps_per_epoch > usual.steps_per_epoch
    for one, other in zip(smaller.batches(0, 9), expected.batches(0, 9), strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.edge_index, other.edge_index)
    assert expected.with_smaller_batches(2) is None, "the user has chosen"
    assert usual.with_smaller_batches(100) is None, "of less than one cluster"


def test_clusters_of_another_graph_are_refused() -> None:
    with refused("clusters are of 41 nodes, the graph has 40"):
        ClusterBatches(WHOLE, cluster(GRAPH.edge_index, 41, 5, "random"), 2)


@settings(max_examples=15)
@given(st.integers(1, 8), st.sampled_from(["gcn", "mean"]), st.booleans())
def test_sums_of_x_are_rows_of_the_whole_graph_s(
    q: int, operator: Operator, precompute: bool
) -> None:
    full_sums: Tensor = getattr(WHOLE.adj, operator) @ GRAPH.x
    batches = list(sampler(q, precompute=precompute).batches(0, 4))
    for batch in (*batches, *reversed(batches)):
        batch_sums = getattr(batch.adj, operator) @ batch.x
        nodes = (batch.x[:, None] == GRAPH.x[None]).all(dim=2).nonzero()[:, 1]
        expected = full_sums[nodes] if precompute else batch_sums
        torch.testing.assert_close(batch.adj.aggregate(operator, batch.x), expected)
        h = batch.x + 0  # equal, and not x itself
        torch.testing.assert_close(batch.adj.aggregate(operator, h), batch_sums)
    narrow = sampler(q, precompute=precompute).select_columns(torch.tensor([4, 0])).batches(0, 4)
    for narrow_batch, batch in zip(narrow, batches, strict=True):
        expected = batch.adj.aggregate(operator, batch.x)[:, [4, 0]]
        actual = narrow_batch.adj.aggregate(operator, narrow_batch.x)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def thetas(
    name: str, count: int, q: int, graph: Graph = GRAPH, *, precompute: bool
) -> dict[str, Tensor]:
    build = {**OURS, "pyg": lambda w: Stack(w, SAGEConv)}[name]
    gist = GIST(build, (8,), 2)
    options = {"epochs": 4, "optimizer": "sgd", "lr": 0.1}
    fit(gist, graph, sampler=ClusterSampling(count, q, "random", precompute=precompute), **options)
    return theta(gist)


def test_models_that_sum_the_features_first_have_the_sums_of_the_whole_graph() -> None:
    for name in ("gcn", "graphsage", "gat", "pyg"):
        with_sums, without = (
            thetas(name, 8, 2, precompute=precompute) for precompute in (True, False)
        )
        assert same(with_sums, without) == (name in ("gat", "pyg"))
        # One cluster is the whole graph.
        torch.testing.assert_close(
            thetas(name, 1, 1, precompute=True), thetas(name, 1, 1, precompute=False)
        )
    x = torch.nn.functional.one_hot(torch.arange(40) % F, F) * (torch.arange(40) % 2)[:, None]
    # Sparse features are projected first, and sums of projections are the batch's own.
    bags = replace(GRAPH, x=x.float())
    assert same(*(thetas("gcn", 8, 2, bags, precompute=precompute) for precompute in (True, False)))
