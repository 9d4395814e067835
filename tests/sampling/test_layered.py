"""Samplers by layers: sparse features, all neighbours, and memory.

Uniform neighbour sampling is compared with its definition.
"""

import tracemalloc

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from gistgnn.nn import GCN
from gistgnn.sampling import Batch, LadiesSampling, NeighborSampling, Sampling, forward, whole_graph
from gistgnn.sampling.layered import draw_edges
from gistgnn.sampling.structure import Structure
from tests.helpers.models import OURS, C, Stack, tiny_graph
from tests.helpers.refusals import refused
from tests.sampling.reference import LAYERED, layers_of, nodes_of, random_graph

WHOLE = whole_graph(tiny_graph(60))


@pytest.mark.parametrize("sampling", LAYERED.values(), ids=LAYERED)
def test_sparse_features_are_gathered_as_such(sampling: Sampling) -> None:
    x = torch.zeros(60, 50)
    x[torch.arange(60), torch.arange(60) % 50] = torch.rand(60) + 1
    full_batches = [
        Batch(x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes, sparse=sparse) for sparse in (None, False)
    ]
    columns = torch.arange(0, 50, 3)
    streams = [
        sampling.sampler(full_batch, 0, layers=2).batches(0, 2) for full_batch in full_batches
    ]
    for one, other in zip(*streams, strict=True):
        assert one.x.layout is torch.sparse_csr
        assert torch.equal(one.dense, other.x)
        narrow = GCN(len(columns), (6,), C)
        torch.testing.assert_close(
            *(forward(narrow, batch.select_columns(columns)) for batch in (one, other))
        )


ALL: dict[str, Sampling] = {"neighbor": NeighborSampling(-1, batch_size=9)}
ALL |= {
    f"ladies, {normalised}": LadiesSampling(
        batch_size=9, nodes_per_layer=60, row_normalise=normalised
    )
    for normalised in (False, True)
}


@pytest.mark.parametrize("sampling", ALL.values(), ids=ALL)
@pytest.mark.parametrize("name", [*OURS, "pyg"])
def test_with_all_neighbours_outputs_are_those_of_the_whole_graph(
    name: str, sampling: Sampling
) -> None:
    model = Stack((6, 5), SAGEConv).eval() if name == "pyg" else OURS[name]((6, 5))
    expected = {
        tuple(row): out for row, out in zip(WHOLE.x.tolist(), forward(model, WHOLE), strict=True)
    }
    batches = sampling.sampler(WHOLE, 0, layers=3).batches(0, 3)
    if isinstance(sampling, LadiesSampling) and name in ("pyg", "gat", "gatv2"):
        with refused(
            "takes an edge_index" if name == "pyg" else "attends", "which LADIES", "neighbor"
        ):
            forward(model, next(batches))
        return
    for batch in batches:
        expected_rows = torch.stack(
            [expected[tuple(row)] for row in batch.x[: len(batch.y)].tolist()]
        )
        out = forward(model, batch)
        assert len(out) == (len(batch.x) if name == "pyg" else len(batch.y))
        torch.testing.assert_close(out[batch.loss_nodes], expected_rows)


def test_the_number_of_layers_has_to_fit() -> None:
    with refused("nodes_per_layer has 2 numbers", "the model 3 layers"):
        LadiesSampling(nodes_per_layer=(5, 5)).sampler(WHOLE, 0, layers=3)
    with refused("fanouts is 10", "no num_layers", "(10, 10)"):
        NeighborSampling().sampler(WHOLE, 0)


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    sampling = NeighborSampling(fanouts=[np.int64(-1), np.int32(5)])
    assert sampling.fanouts == (-1, 5)
    assert {type(fanout) for fanout in sampling.fanouts} == {int}
    assert type(NeighborSampling(fanouts=np.int64(-1)).fanouts) is int


@pytest.mark.parametrize("sampling", [LadiesSampling(batch_size=4), NeighborSampling(batch_size=4)])
def test_a_sampled_structure_is_converted_to_another_type(sampling: Sampling) -> None:
    (batch,) = sampling.sampler(WHOLE, 0, layers=2).batches(0, 1)
    model = GCN(batch.x.shape[1], (4,), C).double()
    converted = batch.adj.to(torch.float64)
    assert converted.to(dtype=torch.float64) is converted
    for number in range(2):
        for operator in ("gcn", "mean", "sum"):
            single = getattr(batch.adj.layer(number), operator)
            double = getattr(converted.layer(number), operator)
            assert double.dtype == torch.float64
            torch.testing.assert_close(double.to_dense(), single.to_dense().double())
    expected = model.float()(batch.x, batch.adj)
    torch.testing.assert_close(model.double()(batch.x.double(), converted).float(), expected)


def test_a_node_has_the_same_neighbours_in_every_layer() -> None:
    full_batch = random_graph(40, 200)
    for batch in NeighborSampling((3, 2, 4), batch_size=6).sampler(full_batch, 0).batches(0, 4):
        lower, *above = layers_of(batch)
        for upper in above:
            rows = upper.pattern.shape[0]
            assert torch.equal(upper.pattern.rowptr, lower.pattern.rowptr[: rows + 1])
            assert torch.equal(upper.pattern.col, lower.pattern.col[: upper.pattern.num_edges])
            lower = upper
        pairs = torch.stack([batch.adj.pattern.row, batch.adj.pattern.col])
        assert pairs.unique(dim=1).shape == pairs.shape  # no neighbour twice
        drawn = batch.adj.pattern.rowptr.diff()
        first, second = lower.pattern.shape
        degree = Structure(full_batch).degrees.plain[nodes_of(batch)]
        for begin, stop, fanout in ((0, first, 3), (first, second, 2), (second, len(drawn), 4)):
            expected = degree[begin:stop].clamp(max=fanout).int()
            assert torch.equal(drawn[begin:stop], expected)


def with_hubs(nodes: int, hubs: int) -> Structure:
    """Nodes with four neighbours, and hubs with an edge from every node."""
    everywhere = torch.arange(nodes).repeat(hubs), torch.arange(hubs).repeat_interleave(nodes)
    ring = torch.arange(nodes).repeat(4)
    neighbours = (ring + torch.arange(4).repeat_interleave(nodes) + 1) % nodes, ring
    edges = torch.cat([torch.stack(everywhere), torch.stack(neighbours)], dim=1).unique(dim=1)
    return Structure(
        Batch(
            torch.zeros(nodes, 1), edges, torch.zeros(nodes, dtype=torch.long), torch.arange(nodes)
        )
    )


def peak_bytes(structure: Structure, fanout: int) -> tuple[int, int]:
    """The most bytes that drawing the edges into all nodes takes, and how many it draws."""
    tracemalloc.start()
    try:
        entries, _ = draw_edges(
            structure, np.arange(structure.nodes), fanout, np.random.default_rng(0)
        )
        return tracemalloc.get_traced_memory()[1], len(entries)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("hubs", [1, 20])
def test_a_hub_takes_the_memory_of_its_own_edges(hubs: int) -> None:
    structure = with_hubs(2000, hubs)
    bytes_for_all, edges = peak_bytes(structure, -1)
    assert bytes_for_all < 100 * edges
    for fanout in (10**9, 2004, 2000, 1990, 300):
        assert peak_bytes(structure, fanout)[0] < 2 * bytes_for_all


@pytest.mark.parametrize("fanout", [1, 2, 5, 9, 40, 10**12])
def test_edges_are_drawn_without_replacement(fanout: int) -> None:
    full_batch = random_graph(30, 150)
    rng = np.random.default_rng(fanout)
    structure = Structure(full_batch)
    nodes = rng.permutation(30)[:20]
    times = np.zeros(structure.edges.nnz)
    for _ in range(300):
        entries, counts = draw_edges(structure, nodes, fanout, rng)
        ranges = [range(*structure.edges.indptr[node : node + 2]) for node in nodes]
        assert counts.tolist() == [min(fanout, len(edges)) for edges in ranges]
        for edges, drawn in zip(ranges, np.split(entries, counts.cumsum()[:-1]), strict=True):
            assert len({*drawn}) == len(drawn)
            assert {*drawn.tolist()} <= {*edges}
        times[entries] += 1
    for edges in ranges:
        share = min(1, fanout / len(edges)) if len(edges) else 0
        differences = np.abs(times[edges.start : edges.stop] / 300 - share)
        assert differences.max(initial=0) < 5 * (0.25 / 300) ** 0.5  # five standard errors
    all_edges = draw_edges(structure, nodes, 10**12, rng)
    for one, other in zip(all_edges, draw_edges(structure, nodes, -1, rng), strict=True):
        assert np.array_equal(one, other)
