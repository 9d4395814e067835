"""Batches that are unions of clusters, and the first layer's sums, which are those of the whole graph if asked for."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import subgraph

from gistgnn import GIST
from gistgnn.graphs.clustering import Clusters, cluster
from gistgnn.nn.adjacency import Operator
from gistgnn.sampling import Batch, ClusterBatches, ClusterSampling, whole_graph
from tests.helpers.fitting import fit, same, theta
from tests.helpers.models import OURS, F, Stack, tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph(40)
WHOLE = whole_graph(GRAPH)


def sampler(q: int, count: int = 8, *, precompute: bool = False) -> ClusterBatches:
    return ClusterBatches(WHOLE, cluster(GRAPH.edge_index, 40, count, "random"), q, precompute=precompute)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, Clusters, int]:
    """A directed multigraph with self-loops and isolated nodes, its clusters, and q."""
    nodes = draw(st.integers(1, 30))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=90))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    if draw(st.booleans()):
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    x = torch.arange(2 * nodes, dtype=torch.float32).view(nodes, 2)  # says which node a row is of
    loss_nodes = torch.tensor(sorted(draw(st.sets(node))), dtype=torch.int64)
    count = draw(st.integers(1, nodes))
    clusters = cluster(edge_index, nodes, count, "random")
    return Batch(x, edge_index, torch.arange(nodes) * 10, loss_nodes), clusters, draw(st.integers(1, count))


def sorted_edges(edge_index: Tensor) -> list[list[int]]:
    return sorted(edge_index.t().tolist())


@settings(max_examples=60)
@given(batches(), st.integers(0, 5))
def test_a_batch_is_the_induced_subgraph(drawn: tuple[Batch, Clusters, int], step: int) -> None:
    whole, clusters, q = drawn
    for batch in ClusterBatches(whole, clusters, q).batches(step, 3):
        nodes = (batch.x[:, 0] / 2).long()
        inside = torch.isin(clusters.assignment, clusters.assignment[nodes])
        assert nodes.sort().values.tolist() == inside.nonzero().squeeze(1).tolist()  # whole clusters
        place = torch.full((len(whole.x),), -1)
        place[nodes] = torch.arange(len(nodes))
        expected, _ = subgraph(nodes, whole.edge_index, num_nodes=len(whole.x))
        assert sorted_edges(batch.edge_index) == sorted_edges(place[expected])
        assert torch.equal(batch.x, whole.x[nodes])
        assert torch.equal(batch.y, whole.y[nodes])
        assert sorted(nodes[batch.loss_nodes].tolist()) == [
            i for i in whole.loss_nodes.tolist() if i in set(nodes.tolist())
        ]
        assert (batch.edge_index[1].diff() >= 0).all()  # by target, as the operators take it


@settings(max_examples=40)
@given(batches(), st.integers(0, 3))
def test_an_epoch_sees_every_node_once(drawn: tuple[Batch, Clusters, int], epoch: int) -> None:
    whole, clusters, q = drawn
    sampler = ClusterBatches(whole, clusters, q)
    steps = sampler.steps_per_epoch
    assert steps == -(-len(clusters) // q)
    seen = torch.cat([batch.x[:, 0] for batch in sampler.batches(epoch * steps, steps)])
    assert sorted((seen / 2).tolist()) == list(range(len(whole.x)))


def test_refused() -> None:
    with refused("clusters are of 41 nodes, the graph has 40"):
        ClusterBatches(WHOLE, cluster(GRAPH.edge_index, 41, 5, "random"), 2)
    with refused("clusters is 41", "from 1 to 40"):
        ClusterSampling(41).sampler(WHOLE, 0)


@settings(max_examples=15)
@given(st.integers(1, 8), st.sampled_from(["gcn", "mean"]), st.booleans())
def test_sums_of_x_are_rows_of_the_whole_graph_s(q: int, operator: Operator, precompute: bool) -> None:
    whole: Tensor = getattr(WHOLE.adj, operator) @ GRAPH.x
    batches = list(sampler(q, precompute=precompute).batches(0, 4))
    for batch in (*batches, *reversed(batches)):
        own = getattr(batch.adj, operator) @ batch.x
        nodes = (batch.x[:, None] == GRAPH.x[None]).all(dim=2).nonzero()[:, 1]
        expected = whole[nodes] if precompute else own
        torch.testing.assert_close(batch.adj.aggregate(operator, batch.x), expected)
        h = batch.x + 0  # equal, and not x itself
        torch.testing.assert_close(batch.adj.aggregate(operator, h), own)
    narrow = sampler(q, precompute=precompute).select_columns(torch.tensor([4, 0])).batches(0, 4)
    for some, batch in zip(narrow, batches, strict=True):
        expected = batch.adj.aggregate(operator, batch.x)[:, [4, 0]]
        torch.testing.assert_close(some.adj.aggregate(operator, some.x), expected, rtol=1e-5, atol=1e-6)


def thetas(name: str, count: int, q: int, graph=GRAPH, *, precompute: bool) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
    build = {**OURS, "pyg": lambda w: Stack(w, SAGEConv)}[name]
    gist = GIST(build, (8,), 2)
    options = {"epochs": 4, "optimizer": "sgd", "lr": 0.1}
    fit(gist, graph, sampler=ClusterSampling(count, q, "random", precompute=precompute), **options)
    return theta(gist)


@pytest.mark.parametrize("name", ["gcn", "graphsage", "gat", "pyg"])
def test_which_models_notice(name: str) -> None:
    with_sums, without = (thetas(name, 8, 2, precompute=precompute) for precompute in (True, False))
    assert same(with_sums, without) == (name in ("gat", "pyg"))
    for both in zip(*(thetas(name, 1, 1, precompute=p).values() for p in (True, False)), strict=True):
        torch.testing.assert_close(*both)  # one cluster is the whole graph


def test_sparse_features_are_not_summed() -> None:
    """They are projected first, and sums of projections are the batch's own."""
    x = torch.nn.functional.one_hot(torch.arange(40) % F, F) * (torch.arange(40) % 2)[:, None]
    bags = replace(GRAPH, x=x.float())
    assert same(*(thetas("gcn", 8, 2, bags, precompute=precompute) for precompute in (True, False)))
