"""The samplers' probabilities and normalised matrices, node by node, as the papers write them down."""

from itertools import combinations

import torch
from torch import Tensor

Dense = list[list[float]]


def adjacency(edge_index: Tensor, nodes: int) -> Dense:
    """A: 1 at (target, source)."""
    a = [[0.0] * nodes for _ in range(nodes)]
    for source, target in edge_index.t().tolist():
        a[target][source] += 1.0
    return a


def laplacian(a: Dense) -> Dense:
    """Ā = D̃^-1/2 (A + I) D̃^-1/2 with one self-loop for each node and D̃ the row sums (eq. 1)."""
    looped = [[1.0 if i == j else a[i][j] for j in range(len(a))] for i in range(len(a))]
    degree = [sum(row) for row in looped]
    return [[looped[i][j] / (degree[i] * degree[j]) ** 0.5 for j in range(len(a))] for i in range(len(a))]


def mean(a: Dense) -> Dense:
    """D^-1 A, 0 where a row is empty."""
    return [[value / sum(row) if sum(row) else 0.0 for value in row] for row in a]


def ladies(a: Dense, outputs: list[int]) -> list[float]:
    """p_j = ||Q Ā_:,j||² / ||Q Ā||_F² (Zou et al., eq. 5), Q the rows of the outputs."""
    p = laplacian(a)
    squares = [sum(p[i][j] ** 2 for i in outputs) for j in range(len(a))]
    return [value / sum(squares) for value in squares]


def fastgcn(a: Dense) -> list[float]:
    """q(u) = ||Ā_:,u||² / Σ ||Ā_:,u'||² (Chen et al., algorithm 2)."""
    return ladies(a, list(range(len(a))))


def saint_node(a: Dense) -> list[float]:
    """P(u) ∝ ||Ã_:,u||² (Zeng et al., section 3.3), with self-loops: Ã = D̃^-1 (A + I)."""
    looped = [[1.0 if i == j else a[i][j] for j in range(len(a))] for i in range(len(a))]
    normal = mean(looped)
    squares = [sum(normal[v][u] ** 2 for v in range(len(a))) for u in range(len(a))]
    return [value / sum(squares) for value in squares]


def saint_edges(a: Dense) -> dict[tuple[int, int], float]:
    """p_uv ∝ 1/deg(u) + 1/deg(v) (Zeng et al., section 3.3) of every undirected edge of a graph without loose nodes."""
    n = len(a)
    degree = [sum(row) for row in a]
    edges = {(u, v): 1 / degree[u] + 1 / degree[v] for u, v in combinations(range(n), 2) if a[u][v]}
    total = sum(edges.values())
    return {edge: value / total for edge, value in edges.items()}


def seen(each: list[tuple[set[int], float]], nodes: set[int], draws: int) -> float:
    """The probability that all of the nodes are touched by some of the draws, by inclusion and exclusion.

    Args:
        each: what one draw may touch, and how likely that is.
        nodes: one or two.
        draws: how many, independent.
    """
    total = 0.0
    for size in range(len(nodes) + 1):
        for missed in combinations(sorted(nodes), size):
            none = sum(p for touched, p in each if not touched & set(missed))
            total += (-1) ** size * none**draws
    return total


def dense(matrix: object) -> Tensor:
    """A `SparseMatrix` in float64."""
    return matrix.to_dense().double()  # type: ignore[attr-defined]


def as_tensor(a: Dense) -> Tensor:
    return torch.tensor(a, dtype=torch.float64)
