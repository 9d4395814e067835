"""Samplers by layers: sparse features, and all neighbours; uniform neighbour sampling against its definition."""

import pytest
import torch
from torch_geometric.nn import SAGEConv

from gistgnn.nn import GCN
from gistgnn.sampling import Batch, LadiesSampling, NeighborSampling, Sampling, forward, whole_graph
from gistgnn.sampling.structure import Structure
from tests.helpers.models import OURS, C, Stack, tiny_graph
from tests.helpers.refusals import refused
from tests.sampling.reference import LAYERED, layers_of, nodes_of, random_graph

WHOLE = whole_graph(tiny_graph(60))


@pytest.mark.parametrize("sampling", LAYERED.values(), ids=LAYERED)
def test_sparse_features_are_gathered_as_such(sampling: Sampling) -> None:
    x = torch.zeros(60, 50)
    x[torch.arange(60), torch.arange(60) % 50] = torch.rand(60) + 1
    wholes = [Batch(x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes, sparse=sparse) for sparse in (None, False)]
    columns = torch.arange(0, 50, 3)
    both = [sampling.sampler(whole, 0, layers=2).batches(0, 2) for whole in wholes]
    for one, other in zip(*both, strict=True):
        assert one.x.layout is torch.sparse_csr
        assert torch.equal(one.dense, other.x)
        narrow = GCN(len(columns), (6,), C)
        torch.testing.assert_close(*(forward(narrow, batch.select_columns(columns)) for batch in (one, other)))


ALL: dict[str, Sampling] = {"neighbor": NeighborSampling(-1, batch_size=9)}
ALL |= {
    f"ladies, {normalised}": LadiesSampling(batch_size=9, nodes_per_layer=60, row_normalise=normalised)
    for normalised in (False, True)
}


@pytest.mark.parametrize("sampling", ALL.values(), ids=ALL)
@pytest.mark.parametrize("name", [*OURS, "pyg"])
def test_with_all_neighbours_outputs_are_those_of_the_whole_graph(name: str, sampling: Sampling) -> None:
    model = Stack((6, 5), SAGEConv).eval() if name == "pyg" else OURS[name]((6, 5))
    expected = {tuple(row): out for row, out in zip(WHOLE.x.tolist(), forward(model, WHOLE), strict=True)}
    batches = sampling.sampler(WHOLE, 0, layers=3).batches(0, 3)
    if isinstance(sampling, LadiesSampling) and name in ("pyg", "gat", "gatv2"):
        with refused("takes an edge_index" if name == "pyg" else "attends", "which LADIES", "neighbor"):
            forward(model, next(batches))
        return
    for batch in batches:
        own = torch.stack([expected[tuple(row)] for row in batch.x[: len(batch.y)].tolist()])
        out = forward(model, batch)
        assert len(out) == (len(batch.x) if name == "pyg" else len(batch.y))
        torch.testing.assert_close(out[batch.loss_nodes], own)


def test_the_number_of_layers_has_to_fit() -> None:
    with refused("nodes_per_layer has 2 numbers", "the model 3 layers"):
        LadiesSampling(nodes_per_layer=(5, 5)).sampler(WHOLE, 0, layers=3)
    with refused("fanouts is 10", "no num_layers", "(10, 10)"):
        NeighborSampling().sampler(WHOLE, 0)


def test_a_node_has_the_same_neighbours_in_every_layer() -> None:
    whole = random_graph(40, 200)
    for batch in NeighborSampling((3, 2, 4), batch_size=6).sampler(whole, 0).batches(0, 4):
        lower, *above = layers_of(batch)
        for upper in above:
            rows = upper.pattern.shape[0]
            assert torch.equal(upper.pattern.rowptr, lower.pattern.rowptr[: rows + 1])
            assert torch.equal(upper.pattern.col, lower.pattern.col[: upper.pattern.num_edges])
            lower = upper
        pairs = torch.stack([batch.adj.pattern.row, batch.adj.pattern.col])
        assert pairs.unique(dim=1).shape == pairs.shape  # no neighbour twice
        kept = batch.adj.pattern.rowptr.diff()
        first, second = lower.pattern.shape
        degree = Structure(whole).degrees.plain[nodes_of(batch)]
        for begin, stop, fanout in ((0, first, 3), (first, second, 2), (second, len(kept), 4)):
            expected = degree[begin:stop].clamp(max=fanout).int()
            assert torch.equal(kept[begin:stop], expected)
