"""Many parallel edges, against NumPy.

Degrees, and the products of a batch that has every neighbour.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.graphs import Graph
from gistgnn.sampling import NeighborSampling, whole_graph
from gistgnn.sampling.structure import Structure

NODES = 5


def graph_of(counts: list[list[int]]) -> Graph:
    """A graph with so many edges from the row's node to the column's, each of a type."""
    ends = [
        (source, target)
        for source in range(NODES)
        for target in range(NODES)
        for _ in range(counts[source][target])
    ]
    edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T
    masks = {"train": [0, 1, 2], "val": [3], "test": [4]}
    types = torch.zeros(edge_index.shape[1], dtype=torch.long)
    return Graph.build(torch.eye(NODES), edge_index, [0, 1, 0, 1, 0], edge_type=types, **masks)


counts = st.sampled_from([0, 0, 0, 1, 2, 127, 128, 200, 256, 300])
rows = st.lists(counts, min_size=NODES, max_size=NODES)
matrices = st.lists(rows, min_size=NODES, max_size=NODES)
matrices = matrices.filter(lambda matrix: any(map(any, matrix)))


@given(matrices)
def test_degrees_of_many_parallel_edges_and_self_loops(counts: list[list[int]]) -> None:
    a = np.array(counts).T  # [target, source]
    structure = Structure(whole_graph(graph_of(counts)))
    loops = np.diag(a)
    assert np.array_equal(structure.degrees.plain, a.sum(axis=1))
    assert np.array_equal(structure.degrees.looped, a.sum(axis=1) - loops + 1)
    assert np.array_equal(structure.missing_loops, loops == 0)
    assert np.array_equal(structure.counts, a.sum(axis=1))
    # The rows of Ā, in which a node has one self-loop.
    np.fill_diagonal(a, 1)
    scale = a.sum(axis=1) ** -0.5
    row_sums = scale * (a @ scale)
    np.testing.assert_allclose(structure.normalised.row_sums, row_sums, rtol=1e-3)


@pytest.mark.parametrize("loops", [1, 127, 200, 256])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_of_all_neighbours_has_the_whole_graph_s_products(
    loops: int, weighted: bool
) -> None:
    counts = [[0] * NODES for _ in range(NODES)]
    counts[0][0] = loops
    counts[1][0] = 2
    counts[0][1] = 1
    counts[2][0] = 130
    graph = graph_of(counts)
    if weighted:
        graph = replace(graph, edge_type=None, edge_weight=torch.ones(graph.num_edges))
    full_batch = whole_graph(graph)
    sampler = NeighborSampling(fanouts=-1, batch_size=3).sampler(full_batch, 0, 1)
    (batch,) = list(sampler.batches(0, 1))
    nodes = batch.x.argmax(dim=1)
    outputs = nodes[: batch.adj.layer(0).pattern.shape[0]]
    expected: Tensor = (full_batch.adj.gcn @ graph.x)[outputs]
    torch.testing.assert_close(batch.adj.layer(0).gcn @ batch.x, expected)
