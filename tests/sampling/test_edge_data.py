"""Every sampler gives the edges of a batch their own weights, features and types."""

from contextlib import closing
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import sampling as kinds
from gistgnn.graphs import Graph
from gistgnn.sampling import Batch, Sampling, training_subgraph, whole_graph
from tests.helpers.edges import edge_graph, only, telling, told
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused
from tests.sampling.reference import SAMPLERS

SUBGRAPHS: dict[str, Sampling] = {
    **{name: SAMPLERS[name] for name in ("neighbor", "saint-node", "saint-edge", "saint-rw")},
    "clusters": kinds.ClusterSampling(5, 2, "random"),
    "all neighbours": kinds.NeighborSampling(-1, batch_size=3),
}


def batches(
    sampling: Sampling, full_batch: Batch, seed: int = 0, count: int = 2, layers: int = 2
) -> list[Batch]:
    with closing(sampling.sampler(full_batch, seed, layers=layers).batches(0, count)) as made:
        return list(made)


def check_told(batch: Batch) -> None:
    expected = told(batch.dense, batch.edge_index)
    assert batch.edge_data.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(batch.edge_data[name], value, rtol=0, atol=0)


@settings(max_examples=40)
@given(st.sampled_from(list(SUBGRAPHS)), st.integers(6, 30), st.integers(0, 99), st.booleans())
def test_an_edge_has_its_own_data(name: str, nodes: int, seed: int, inductive: bool) -> None:
    graph = telling(tiny_graph(nodes, seed))
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(seed))
    data = {name: value[order] for name, value in graph.edge_data.items()}
    unsorted = Batch(
        graph.x, graph.edge_index[:, order], graph.y, graph.train.nonzero()[:, 0], edge_data=data
    )
    full_batch = training_subgraph(graph) if inductive else unsorted
    check_told(full_batch)
    torch.testing.assert_close(
        full_batch.adj.edge_weight,
        told(full_batch.x, full_batch.edge_index)["edge_weight"],
        rtol=0,
        atol=0,
    )
    if (name != "clusters" or len(full_batch.x) >= 5) and full_batch.edge_index.numel():
        for batch in batches(SUBGRAPHS[name], full_batch, seed):
            check_told(batch)


def test_repeated_edges_have_their_own_data_or_are_refused() -> None:
    graph = only(edge_graph(), "edge_type")
    edges = torch.cat([graph.edge_index, graph.edge_index[:, :4]], dim=1)
    types = torch.cat([graph.edge_type, (graph.edge_type[:4] + 1) % 3])
    masks = {"train": graph.train, "val": graph.val, "test": graph.test}
    twice = Graph.build(graph.x, edges, graph.y, edge_type=types, **masks)
    full_batch = whole_graph(twice)
    for name in ("clusters", "neighbor", "all neighbours"):
        for batch in batches(SUBGRAPHS[name], full_batch):
            assert len(batch.edge_data["edge_type"]) == batch.edge_index.shape[1]
    for name in ("saint-node", "saint-edge", "saint-rw"):
        with refused("4 edges join nodes that another edge joins", name, "coalesce"):
            batches(SUBGRAPHS[name], full_batch)
        without_data = Batch(
            full_batch.x, full_batch.edge_index, full_batch.y, full_batch.loss_nodes
        )
        with refused("4 edges join nodes that another edge joins", name, "coalesce"):
            batches(SUBGRAPHS[name], without_data)


def test_negative_weights_are_refused_where_they_are_summed() -> None:
    graph = replace(tiny_graph(), edge_weight=torch.full((tiny_graph().num_edges,), -2.0))
    for sampling in (*SUBGRAPHS.values(), kinds.LadiesSampling()):
        with refused("edge_weight holds -2"):
            for batch in batches(sampling, whole_graph(graph), count=5):
                _ = batch.adj.gcn
