"""Small graphs for the tests of samplers, and what their batches hold."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.sampling import Batch

F = 2


def directed(nodes: int, edges: list[tuple[int, int]], train: list[int] | None = None) -> Batch:
    """A graph whose features say which node a row is of: (v, 1)."""
    pairs = sorted(set(edges), key=lambda edge: (edge[1], edge[0]))
    edge_index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    x = torch.stack([torch.arange(nodes, dtype=torch.float32), torch.ones(nodes)], dim=1)
    chosen = torch.arange(nodes) if train is None else torch.tensor(train, dtype=torch.int64)
    return Batch(x, edge_index, torch.arange(nodes) % 3, chosen, sparse=False)


def random_graph(nodes: int, edges: int, seed: int = 0, *, both_ways: bool = True) -> Batch:
    """Undirected or directed, without self-loops, every node with a neighbour."""
    rng = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (edges, 2), generator=rng).tolist()
    pairs = [(u, v) for u, v in ends if u != v] + [(i, (i + 1) % nodes) for i in range(nodes)]
    return directed(nodes, pairs + [(v, u) for u, v in pairs] if both_ways else pairs)


@st.composite
def graphs(draw: st.DrawFn) -> Batch:
    """A directed graph, perhaps with self-loops, isolated nodes and few training nodes."""
    nodes = draw(st.integers(2, 25))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=80))
    if draw(st.booleans()):
        edges += [(v, u) for u, v in edges]
    train = sorted(draw(st.sets(node, min_size=1)))
    return directed(nodes, edges, train)


def nodes_of(batch: Batch) -> Tensor:
    return batch.x[:, 0].long()
