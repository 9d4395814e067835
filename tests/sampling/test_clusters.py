from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import subgraph

from gistgnn.graphs.clustering import Clusters, cluster
from gistgnn.sampling import Batch, ClusterBatches, ClusterSampling, forward, whole_graph
from tests.helpers.logs import logged
from tests.helpers.models import OURS, C, F, Stack, tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph(60)


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
    clusters = cluster(edge_index, nodes, count, draw(st.sampled_from(["random", "random", "metis"])))
    return Batch(x, edge_index, torch.arange(nodes) * 10, loss_nodes), clusters, draw(st.integers(1, count))


def nodes_of(batch: Batch) -> Tensor:
    return (batch.x[:, 0] / 2).long()


def sorted_edges(edge_index: Tensor) -> list[list[int]]:
    return sorted(edge_index.t().tolist())


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(0, 5))
def test_a_batch_is_the_induced_subgraph(drawn: tuple[Batch, Clusters, int], step: int) -> None:
    whole, clusters, q = drawn
    for batch in ClusterBatches(whole, clusters, q).batches(step, 3):
        nodes = nodes_of(batch)
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


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(0, 3))
def test_an_epoch_sees_every_node_once(drawn: tuple[Batch, Clusters, int], epoch: int) -> None:
    whole, clusters, q = drawn
    sampler = ClusterBatches(whole, clusters, q)
    steps = sampler.steps_per_epoch
    assert steps == -(-len(clusters) // q)
    seen = torch.cat([nodes_of(batch) for batch in sampler.batches(epoch * steps, steps)])
    assert sorted(seen.tolist()) == list(range(len(whole.x)))


def make(q: int = 3) -> ClusterBatches:
    return ClusterBatches(whole_graph(GRAPH), cluster(GRAPH.edge_index, GRAPH.num_nodes, 10, "random"), q)


def content(batch: Batch) -> list[object]:
    return [t.tolist() for t in (batch.x, batch.edge_index, batch.y, batch.loss_nodes)]


def listed(sampler: ClusterBatches, first: int, steps: int) -> list[list[object]]:
    return [content(batch) for batch in sampler.batches(first, steps)]


def test_all_clusters_together_are_the_graph() -> None:
    """The operators are normalised over the batch: with q = c the outputs are those of the whole graph."""
    (batch,) = make(10).batches(0, 1)
    order = cluster(GRAPH.edge_index, GRAPH.num_nodes, 10, "random").order
    for model in (OURS["gcn"]((6,)), OURS["graphsage"]((6,)), Stack((6,), SAGEConv)):
        expected = forward(model.eval(), whole_graph(GRAPH))
        torch.testing.assert_close(forward(model, batch), expected[order])


def test_multi_label_targets() -> None:
    graph = tiny_graph(30, multi_label=True)
    clusters = cluster(graph.edge_index, 30, 4, "random")
    (batch,) = ClusterBatches(whole_graph(graph), clusters, 4).batches(0, 1)
    assert torch.equal(batch.y, graph.y[clusters.order])


def test_refused() -> None:
    whole = whole_graph(GRAPH)
    with refused("clusters_per_batch is 0", ">= 1"):
        ClusterBatches(whole, cluster(GRAPH.edge_index, 60, 5, "random"), 0)
    with refused("clusters are of 61 nodes, the graph has 60"):
        ClusterBatches(whole, cluster(GRAPH.edge_index, 61, 5, "random"), 2)
    with refused("clusters is 61", "from 1 to 60"):
        ClusterSampling(61).sampler(whole, 0)


def test_settings_make_the_sampler() -> None:
    sampler = ClusterSampling(10, 3, "random").sampler(whole_graph(GRAPH), 0)
    assert listed(sampler, 0, 4) == listed(make(), 0, 4)
    directed = replace(whole_graph(GRAPH), edges=GRAPH.edge_index[:, GRAPH.edge_index[0] < GRAPH.edge_index[1]])
    with logged() as notes:
        ClusterSampling(10, 3).sampler(directed, 0)
    assert any("not symmetric" in note for note in notes)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_batches_are_where_the_graph_is(device: str) -> None:
    graph = GRAPH.to(device)
    sampler = ClusterSampling(10, 3).sampler(whole_graph(graph), 0)
    for batch, host in zip(
        sampler.batches(0, 4), ClusterSampling(10, 3).sampler(whole_graph(GRAPH), 0).batches(0, 4), strict=True
    ):
        assert {t.device.type for t in (batch.x, batch.y, batch.edge_index, batch.loss_nodes)} == {device}
        assert content(batch) == content(host)
        assert forward(OURS["gcn"]((6,)).to(device), batch).shape == (len(batch.x), C)
        assert batch.x.shape[1] == F
