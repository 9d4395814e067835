"""What all samplers by layers have in common: epochs, seeds, and what a batch holds."""

from contextlib import closing

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import SAGEConv

from gistgnn.nn import GCN, MODELS
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling import (
    Batch,
    FastGCNSampling,
    LadiesSampling,
    NeighborSampling,
    Sampling,
    forward,
    training_subgraph,
    whole_graph,
)
from tests.helpers.models import OURS, C, Stack, tiny_graph
from tests.helpers.refusals import refused
from tests.sampling.random_graphs import graphs, nodes_of

GRAPH = tiny_graph(60)
WHOLE = whole_graph(GRAPH)
SAMPLERS: dict[str, Sampling] = {
    "ladies": LadiesSampling(batch_size=7, nodes_per_layer=5),
    "ladies, unbiased": LadiesSampling(batch_size=7, nodes_per_layer=5, row_normalise=False),
    "fastgcn": FastGCNSampling(batch_size=7, nodes_per_layer=(9, 5)),
    "neighbor": NeighborSampling(2, batch_size=7),
}
each_sampling = pytest.mark.parametrize("sampling", SAMPLERS.values(), ids=SAMPLERS)


def structure(batch: Batch) -> SampledAdjacency:
    assert isinstance(batch.adj, SampledAdjacency)
    return batch.adj


@each_sampling
@settings(max_examples=30, deadline=None)
@given(whole=graphs(), step=st.integers(0, 5))
def test_a_batch_is_made_of_edges_of_the_graph(sampling: Sampling, whole: Batch, step: int) -> None:
    edges = set(map(tuple, whole.edge_index.t().tolist()))
    with closing(sampling.sampler(whole, 0, layers=2).batches(step, 2)) as batches:
        for batch in batches:
            nodes, adj = nodes_of(batch).tolist(), structure(batch)
            assert len(set(nodes)) == len(nodes)
            outputs = adj.num_outputs
            assert set(nodes[:outputs]) <= set(whole.loss_nodes.tolist())
            assert batch.y.tolist() == [whole.y[node] for node in nodes[:outputs]]
            assert batch.loss_nodes.tolist() == list(range(outputs))
            assert adj.num_nodes == len(nodes)
            upper = adj.above[0]
            assert upper.num_nodes == adj.pattern.shape[0]
            for layer in (adj, upper):
                pairs = zip(layer.pattern.col.tolist(), layer.pattern.row.tolist(), strict=True)
                assert {(nodes[source], nodes[target]) for source, target in pairs} <= edges


@each_sampling
@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_has_every_training_node_as_an_output_once(sampling: Sampling, epoch: int) -> None:
    sampler = sampling.sampler(WHOLE, 1, layers=2)
    steps = sampler.steps_per_epoch
    assert steps == 3  # 20 training nodes, 7 in a batch
    place = {tuple(row): node for node, row in enumerate(WHOLE.x.tolist())}
    seen = [
        place[tuple(row)]
        for batch in sampler.batches(epoch * steps, steps)
        for row in batch.x[: structure(batch).num_outputs].tolist()
    ]
    assert sorted(seen) == WHOLE.loss_nodes.tolist()


@each_sampling
def test_sparse_features_are_gathered_as_such(sampling: Sampling) -> None:
    x = torch.zeros(60, 50)
    x[torch.arange(60), torch.arange(60) % 50] = torch.rand(60) + 1
    sparse = Batch(x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes)
    dense = Batch(x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes, sparse=False)
    columns = torch.arange(0, 50, 3)
    for one, other in zip(
        *(sampling.sampler(whole, 0, layers=2).batches(0, 2) for whole in (sparse, dense)), strict=True
    ):
        assert one.x.layout is torch.sparse_csr
        assert one.is_sparse
        assert torch.equal(one.dense, other.x)
        for name in ("gcn", "graphsage"):
            model = MODELS[name](50, (6,), C)
            torch.testing.assert_close(forward(model, one), forward(model, other))
        narrow = GCN(len(columns), (6,), C)
        found = [forward(narrow, batch.select_columns(columns)) for batch in (one, other)]
        torch.testing.assert_close(*found)


EVERYTHING = {
    **{name: NeighborSampling(-1, batch_size=9) for name in OURS},
    "pyg": NeighborSampling((-1, -1), batch_size=9),
    **{name: LadiesSampling(batch_size=9, nodes_per_layer=60) for name in ("gcn, ladies", "graphsage, ladies")},
    "gcn, unbiased": LadiesSampling(batch_size=9, nodes_per_layer=60, row_normalise=False),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_with_all_neighbours_outputs_are_those_of_the_whole_graph(name: str) -> None:
    model = Stack((6,), SAGEConv).eval() if name == "pyg" else OURS[name.split(",")[0]]((6, 5))
    layers = 2 if name == "pyg" else 3
    expected = {tuple(row): out for row, out in zip(WHOLE.x.tolist(), forward(model, WHOLE), strict=True)}
    for batch in EVERYTHING[name].sampler(WHOLE, 0, layers=layers).batches(0, 3):
        own = torch.stack([expected[tuple(row)] for row in batch.x[: len(batch.y)].tolist()])
        out = forward(model, batch)
        assert len(out) == (len(batch.x) if name == "pyg" else len(batch.y))
        torch.testing.assert_close(out[batch.loss_nodes], own)


def test_ladies_is_not_for_models_that_take_an_edge_index() -> None:
    with refused("takes an edge_index, which LADIES", "neighbor"):
        batch = next(LadiesSampling(nodes_per_layer=(5, 5)).sampler(WHOLE, 0).batches(0, 1))
        forward(Stack((6,), SAGEConv), batch)


def test_the_training_subgraph_is_sampled_where_training_sees_no_more() -> None:
    part = training_subgraph(GRAPH)
    for batch in NeighborSampling(3, batch_size=9).sampler(part, 0, layers=2).batches(0, 3):
        rows = {tuple(row) for row in part.x.tolist()}
        assert all(tuple(row) in rows for row in batch.x.tolist())


def test_the_number_of_layers_has_to_fit() -> None:
    with refused("nodes_per_layer has 2 numbers", "the model 3 layers"):
        LadiesSampling(nodes_per_layer=(5, 5)).sampler(WHOLE, 0, layers=3)
    with refused("fanouts has 2 numbers", "the model 3 layers"):
        NeighborSampling((5, 5)).sampler(WHOLE, 0, layers=3)
    with refused("nodes_per_layer is 512", "no num_layers", "(512, 512)"):
        LadiesSampling().sampler(WHOLE, 0)
    with refused("fanouts is 10", "no num_layers", "(10, 10)"):
        NeighborSampling().sampler(WHOLE, 0)
