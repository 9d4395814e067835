"""Uniform neighbour sampling against its definition."""

from collections import Counter
from itertools import combinations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling import Batch, NeighborSampling
from gistgnn.sampling.neighbor import draw_edges
from gistgnn.sampling.structure import Structure
from tests.sampling.random_graphs import graphs, nodes_of, random_graph


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 6), st.integers(0, 99))
def test_neighbours_are_distinct_and_as_many_as_there_are(whole: Batch, fanout: int, seed: int) -> None:
    structure, nodes = Structure(whole), np.arange(whole.x.shape[0])
    entries, counts = draw_edges(structure, nodes, fanout, np.random.default_rng(seed))
    drawn = structure.edges.indices[entries]
    ends = np.concatenate([[0], counts.cumsum()])
    for node in nodes:
        own = drawn[ends[node] : ends[node + 1]].tolist()
        sources = whole.edge_index[0, whole.edge_index[1] == node].tolist()
        assert len(own) == len(set(own)) == min(fanout, len(sources))
        assert set(own) <= set(sources)
    entries, counts = draw_edges(structure, nodes, -1, np.random.default_rng(seed))
    assert structure.edges.indices[entries].tolist() == whole.edge_index[0].tolist()


def test_every_set_of_neighbours_is_as_likely() -> None:
    structure = Structure(random_graph(12, 40))
    degree = np.diff(structure.edges.indptr)
    node = int(np.flatnonzero(degree >= 5)[0])
    sources = structure.edges[node].indices.tolist()
    repeated = np.full(6000, node)
    entries, _ = draw_edges(structure, repeated, 3, np.random.default_rng(0))
    found = Counter(frozenset(each) for each in structure.edges.indices[entries].reshape(-1, 3).tolist())
    sets = [frozenset(each) for each in combinations(sources, 3)]
    assert found.keys() == set(sets)
    expected = 6000 / len(sets)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in found.values())


def test_a_node_has_the_same_neighbours_in_every_layer() -> None:
    whole = random_graph(40, 200)
    for batch in NeighborSampling((3, 2, 4), batch_size=6).sampler(whole, 0).batches(0, 4):
        assert isinstance(batch.adj, SampledAdjacency)
        lower = batch.adj
        for upper in batch.adj.above:
            rows = upper.pattern.shape[0]
            assert torch.equal(upper.pattern.rowptr, lower.pattern.rowptr[: rows + 1])
            assert torch.equal(upper.pattern.col, lower.pattern.col[: upper.pattern.num_edges])
            lower = upper
        kept = batch.adj.pattern.rowptr.diff()
        first, second = lower.pattern.shape
        degree = Structure(whole).degrees.plain[nodes_of(batch)]
        for begin, stop, fanout in ((0, first, 3), (first, second, 2), (second, len(kept), 4)):
            expected = degree[begin:stop].clamp(max=fanout).int()
            assert torch.equal(kept[begin:stop], expected)
