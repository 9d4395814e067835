"""Small graphs, what their batches hold, and the papers' formulas.

Probabilities and matrices are written down node by node.
"""

from collections.abc import Iterable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from gistgnn import sampling as kinds
from gistgnn.sampling import Batch, Sampling

Dense = list[list[float]]
LAYERED: dict[str, Sampling] = {
    "ladies": kinds.LadiesSampling(batch_size=7, nodes_per_layer=5),
    "ladies, unbiased": kinds.LadiesSampling(batch_size=7, nodes_per_layer=5, row_normalise=False),
    "fastgcn": kinds.FastGCNSampling(batch_size=7, nodes_per_layer=(9, 5)),
    "neighbor": kinds.NeighborSampling(2, batch_size=7),
}
SAMPLERS: dict[str, Sampling] = {  # for two layers and about 60 nodes
    "clusters": kinds.ClusterSampling(10, 3, "random"),
    **LAYERED,
    "saint-node": kinds.SaintNodeSampling(batch_size=12),
    "saint-edge": kinds.SaintEdgeSampling(batch_size=7),
    "saint-rw": kinds.SaintWalkSampling(batch_size=5, sample_coverage=20),
}


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
    pairs = [(u, v) for u, v in ends if u != v]
    pairs += [(node, (node + 1) % nodes) for node in range(nodes)]
    if both_ways:
        pairs += [(v, u) for u, v in pairs]
    return directed(nodes, pairs)


@st.composite
def graphs(draw: st.DrawFn) -> Batch:
    """A directed graph, perhaps with self-loops, isolated nodes and few training nodes."""
    nodes = draw(st.integers(2, 25))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=80))
    if draw(st.booleans()):
        edges += [(v, u) for u, v in edges]
    return directed(nodes, edges, sorted(draw(st.sets(node, min_size=1))))


def nodes_of(batch: Batch) -> Tensor:
    return batch.x[:, 0].long()


def layers_of(batch: Batch) -> list[Any]:
    """The structure of every layer; one if all share it."""
    return [batch.adj, *getattr(batch.adj, "above", ())]


def adjacency(batch: Batch) -> Dense:
    """A: the weight, or 1, at (target, source)."""
    a = [[0.0] * len(batch.x) for _ in range(len(batch.x))]
    weights = batch.edge_data.get("edge_weight", torch.ones(batch.adj.num_edges)).tolist()
    for (source, target), weight in zip(batch.edge_index.t().tolist(), weights, strict=True):
        a[target][source] += weight
    return a


def with_loops(a: Dense) -> Dense:
    """A + I with one self-loop for each node; self-loops of A stay as they are."""
    return [[a[i][j] or float(i == j) for j in range(len(a))] for i in range(len(a))]


def plus_one(a: Dense) -> Dense:
    """A + I: every node counts once beside its edges, as in GIN."""
    return [[a[i][j] + (i == j) for j in range(len(a))] for i in range(len(a))]


def laplacian(a: Dense) -> Dense:
    """Ā = D̃^-1/2 (A + I) D̃^-1/2 with D̃ the row sums (eq. 1)."""
    looped = with_loops(a)
    degree = [sum(row) for row in looped]
    return [
        [looped[i][j] / (degree[i] * degree[j]) ** 0.5 for j in range(len(a))]
        for i in range(len(a))
    ]


def mean(a: Dense) -> Dense:
    """D^-1 A, 0 where a row is empty."""
    return [[value / sum(row) if sum(row) else 0.0 for value in row] for row in a]


def squared_columns(matrix: Dense, rows: Iterable[int]) -> list[float]:
    """p_j ∝ Σ_i M_ij² over some rows i."""
    chosen = list(rows)
    squares = [sum(matrix[i][j] ** 2 for i in chosen) for j in range(len(matrix))]
    return [value / sum(squares) for value in squares]


def ladies(a: Dense, outputs: list[int]) -> list[float]:
    """p_j = ||Q Ā_:,j||² / ||Q Ā||_F² (Zou et al., eq. 5), Q the rows of the outputs."""
    return squared_columns(laplacian(a), outputs)


def fastgcn(a: Dense) -> list[float]:
    """q(u) = ||Ā_:,u||² / Σ ||Ā_:,u'||² (Chen et al., algorithm 2)."""
    return squared_columns(laplacian(a), range(len(a)))


def saint_node(a: Dense) -> list[float]:
    """P(u) ∝ ||Ã_:,u||² (Zeng et al., section 3.3), with self-loops: Ã = D̃^-1 (A + I)."""
    return squared_columns(mean(with_loops(a)), range(len(a)))


class Mean:
    """The entries' mean and variance over samples, each entry over those samples that have it."""

    def __init__(self, *shape: int) -> None:
        self.count = torch.zeros(shape, dtype=torch.float64)
        self._sum = torch.zeros_like(self.count)
        self._squares = torch.zeros_like(self.count)

    def add(self, sample: Tensor, has: Tensor | None = None) -> None:
        """Take a sample; `has` says which entries it has, None that it has all."""
        present = torch.ones_like(self.count)
        if has is not None:
            present = has.double().expand_as(self.count)
        self.count += present
        self._sum += present * sample
        self._squares += present * sample**2

    def errors(self, exact: Tensor) -> Tensor:
        """Each entry's error in standard errors, of those entries that vary.

        What does not vary has to be exact.
        """
        average = self._sum / self.count
        variance = (self._squares / self.count - average**2).clamp(min=0)
        varies = variance > 1e-10 * (1 + average**2)
        torch.testing.assert_close(average[~varies], exact[~varies], rtol=1e-4, atol=1e-6)
        return ((average - exact) / (variance / self.count).sqrt())[varies]


def features(x: Tensor, extra: int = 6) -> Tensor:
    """The features in float64, and some random ones: [N, F + extra]."""
    rng = torch.Generator().manual_seed(0)
    return torch.cat(
        [x.double(), torch.randn(len(x), extra, dtype=torch.float64, generator=rng)], dim=1
    )


def converges(samples: Iterable[tuple[Tensor, ...]], exact: Tensor, at: tuple[int, ...]) -> None:
    """Check that errors are as large as their standard errors, and no more, after so many samples.

    The mean square of errors in units of (deviation / sqrt(samples)) is 1 if the mean is right and
    errors shrink as the root of the number of samples; a bias makes it grow with that number.
    """
    average = Mean(*exact.shape)
    iterator = iter(samples)
    for number in range(1, max(at) + 1):
        average.add(*next(iterator))
        if number in at:
            errors = average.errors(exact)
            assert len(errors) > 10
            assert 0.3 < errors.square().mean() < 3, errors.square().mean()
            assert errors.abs().max() < 5.5
