"""What all samplers by layers have in common: epochs, seeds, and what a batch holds."""

from contextlib import closing

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import SAGEConv

from gistgnn.nn import GCN, MODELS
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling import (
    Batch,
    ClusterSampling,
    FastGCNSampling,
    LadiesSampling,
    NeighborSampling,
    Sampling,
    forward,
    training_subgraph,
    whole_graph,
)
from tests.helpers.models import OURS, C, tiny_graph
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


def content(batch: Batch) -> list[object]:
    """All that a batch holds, to compare."""
    adj = structure(batch)
    found: list[object] = [batch.x.tolist(), batch.y.tolist()]
    for layer in (adj, *adj.above):
        assert layer.weight is not None
        found += [layer.pattern.rowptr.tolist(), layer.pattern.col.tolist(), layer.weight.tolist()]
    return found


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
def test_a_batch_follows_from_seed_and_step_alone(sampling: Sampling) -> None:
    sampler, again = sampling.sampler(WHOLE, 4, layers=2), sampling.sampler(WHOLE, 4, layers=2)
    expected = [content(batch) for batch in sampler.batches(0, 5)]
    assert [content(batch) for step in range(5) for batch in again.batches(step, 1)] == expected
    assert [content(batch) for batch in sampling.sampler(WHOLE, 5, layers=2).batches(0, 5)] != expected
    assert sampler.for_sub_gcn(2) is sampler
    assert list(sampler.batches(2, 0)) == []


@pytest.mark.parametrize("name", ["ladies", "fastgcn", "neighbor"])
def test_independent_batches_differ_by_sub_gcn(name: str) -> None:
    options = {"batch_size": 7, "batches": "independent"}
    sampling = {"ladies": LadiesSampling, "fastgcn": FastGCNSampling, "neighbor": NeighborSampling}[name](**options)  # type: ignore[arg-type]
    sampler = sampling.sampler(WHOLE, 0, layers=2)
    first, second = (next(sampler.for_sub_gcn(i).batches(0, 1)) for i in (0, 1))
    assert content(first) != content(second)
    assert content(first) == content(next(sampler.for_sub_gcn(0).batches(0, 1)))


@each_sampling
def test_some_columns_of_the_same_batches(sampling: Sampling) -> None:
    sampler, columns = sampling.sampler(WHOLE, 0, layers=2), torch.tensor([0, 2, 5])
    for batch, selected in zip(sampler.batches(0, 2), sampler.select_columns(columns).batches(0, 2), strict=True):
        assert torch.equal(selected.x, batch.x[:, columns])
        model = GCN(3, (4,), C)
        torch.testing.assert_close(forward(model, selected), model(batch.x[:, columns], structure(batch)))


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


@pytest.mark.parametrize("name", OURS)
def test_all_neighbours_give_the_outputs_of_the_whole_graph(name: str) -> None:
    model, everything = OURS[name]((6, 5)), NeighborSampling(-1, batch_size=9)
    expected = {tuple(row): out for row, out in zip(WHOLE.x.tolist(), forward(model, WHOLE), strict=True)}
    for batch in everything.sampler(WHOLE, 0, layers=3).batches(0, 3):
        own = torch.stack([expected[tuple(row)] for row in batch.x[: len(batch.y)].tolist()])
        torch.testing.assert_close(forward(model, batch), own)


@pytest.mark.parametrize("row_normalise", [True, False])
@pytest.mark.parametrize("name", ["gcn", "graphsage"])
def test_ladies_with_room_for_all_neighbours_is_exact(name: str, row_normalise: bool) -> None:
    model = OURS[name]((6, 5))
    sampling = LadiesSampling(batch_size=9, nodes_per_layer=60, row_normalise=row_normalise)
    expected = {tuple(row): out for row, out in zip(WHOLE.x.tolist(), forward(model, WHOLE), strict=True)}
    for batch in sampling.sampler(WHOLE, 0, layers=3).batches(0, 3):
        own = torch.stack([expected[tuple(row)] for row in batch.x[: len(batch.y)].tolist()])
        torch.testing.assert_close(forward(model, batch), own)


class Pyg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(7, 6), SAGEConv(6, C)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return out


def test_models_that_take_an_edge_index_get_the_neighbours_as_one_graph() -> None:
    model, everything = Pyg(), NeighborSampling((-1, -1), batch_size=9)
    expected = {tuple(row): out for row, out in zip(WHOLE.x.tolist(), forward(model, WHOLE), strict=True)}
    for batch in everything.sampler(WHOLE, 0).batches(0, 3):
        out = forward(model, batch)
        assert len(out) == len(batch.x) > len(batch.y)
        own = torch.stack([expected[tuple(row)] for row in batch.x[: len(batch.y)].tolist()])
        torch.testing.assert_close(out[batch.loss_nodes], own)
    with refused("takes an edge_index, which LADIES", "neighbor"):
        forward(model, next(LadiesSampling(nodes_per_layer=(5, 5)).sampler(WHOLE, 0).batches(0, 1)))


def test_the_training_subgraph_is_sampled_where_training_sees_no_more() -> None:
    part = training_subgraph(GRAPH)
    for batch in NeighborSampling(3, batch_size=9).sampler(part, 0, layers=2).batches(0, 3):
        rows = {tuple(row) for row in part.x.tolist()}
        assert all(tuple(row) in rows for row in batch.x.tolist())


@pytest.mark.parametrize(
    ("sampling", "options", "said"),
    [
        (LadiesSampling, {"batch_size": 0}, "batch_size is 0"),
        (LadiesSampling, {"nodes_per_layer": 0}, "nodes_per_layer is 0"),
        (LadiesSampling, {"nodes_per_layer": (5, True)}, "nodes_per_layer is True"),
        (FastGCNSampling, {"nodes_per_layer": ()}, "nodes_per_layer is ()"),
        (FastGCNSampling, {"batches": "own"}, "batches is 'own'"),
        (NeighborSampling, {"fanouts": (10, -2)}, "fanouts is -2"),
        (NeighborSampling, {"fanouts": 0}, "fanouts is 0"),
        (NeighborSampling, {"fanouts": ()}, "fanouts is ()"),
        (NeighborSampling, {"batch_size": 2.5}, "batch_size is 2.5"),
        (FastGCNSampling, {"row_normalise": float("-inf")}, "row_normalise is -inf"),
        (LadiesSampling, {"row_normalise": 1}, "row_normalise is 1"),
        (ClusterSampling, {"clusters": 40, "precompute": "shared"}, "precompute is 'shared'"),
    ],
)
def test_bad_settings(sampling: type[Sampling], options: dict[str, object], said: str) -> None:
    with refused(said, "expected"):
        sampling(**options)  # type: ignore[arg-type]


def test_the_number_of_layers_has_to_fit() -> None:
    with refused("nodes_per_layer has 2 numbers", "the model 3 layers"):
        LadiesSampling(nodes_per_layer=(5, 5)).sampler(WHOLE, 0, layers=3)
    with refused("fanouts has 2 numbers", "the model 3 layers"):
        NeighborSampling((5, 5)).sampler(WHOLE, 0, layers=3)
    with refused("nodes_per_layer is 512", "no num_layers", "(512, 512)"):
        LadiesSampling().sampler(WHOLE, 0)
    with refused("fanouts is 10", "no num_layers", "(10, 10)"):
        NeighborSampling().sampler(WHOLE, 0)
