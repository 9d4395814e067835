"""The regression problem of the analysis: a graph with Ā, inputs X and targets y (appendix C.1, C.2)."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gistgnn import InputError
from gistgnn.graphs import Graph
from gistgnn.theory.gram import limit_gram

MOST_NODES = 5000  # the analysis needs the eigenvalues of dense n x n matrices


def adjacency(edge_index: Tensor, nodes: int) -> Tensor:
    """Return A, [n, n] float64 of 0 and 1, from edges [2, E]; an edge that is listed twice counts once."""
    A = torch.zeros(nodes, nodes, dtype=torch.float64, device=edge_index.device)
    A[edge_index[1], edge_index[0]] = 1.0
    return A


def aggregation(edge_index: Tensor, nodes: int) -> Tensor:
    """Return Ā = I + D^-1/2 A D^-1/2, [n, n] float64 (eq. Aggregation Matrix), from [2, E] edges in both directions.

    D^-1/2 is the pseudo-inverse: an isolated node has D_ii = 0 and keeps its own features.
    """
    A = adjacency(edge_index, nodes)
    degrees = A.sum(dim=1)
    scale = torch.where(degrees > 0, degrees.clamp(min=1.0).rsqrt(), 0.0)
    return torch.eye(nodes, dtype=torch.float64, device=A.device) + scale[:, None] * A * scale


@dataclass(frozen=True, eq=False)
class Problem:
    """Scalar regression on the n nodes of an undirected graph.

    Attributes:
        x: X, [n, d] float64, the input features.
        edge_index: [2, E] int64, every edge in both directions.
        y: [n] float64, the targets.

    Raises:
        InputError: x is not [n, d] float64 with n and d at least 1, y is not [n] float64, or the graph is directed.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        for name, tensor, shape in (("x", self.x, "[n, d]"), ("y", self.y, "[n]")):
            if tensor.ndim != shape.count(",") + 1 or tensor.dtype != torch.float64 or not tensor.numel():
                raise InputError(f"{name} is {list(tensor.shape)} {tensor.dtype}, expected {shape} float64")
        if len(self.y) != self.n:
            raise InputError(f"y is {list(self.y.shape)}, expected [{self.n}], one number for each node")
        A = adjacency(self.edge_index, self.n)
        if not torch.equal(A, A.T):  # Ā would not be symmetric, and nothing in the analysis would hold
            target, source = (A > A.T).nonzero()[0].tolist()
            advice = "expected an undirected graph: add the other direction of every edge"
            raise InputError(f"the edge {source} -> {target} has no edge back, {advice}")

    @classmethod
    def from_graph(cls, graph: Graph, y: Tensor | None = None) -> "Problem":
        """Take the features and edges of an undirected graph with at most `MOST_NODES` nodes.

        y are [n] targets; None takes the classes, spread evenly over [-1, 1].

        Raises:
            InputError: the graph or y cannot be used.
        """
        n = graph.num_nodes
        if n > MOST_NODES:
            most = f"expected at most {MOST_NODES:,}, whose matrices are dense"
            raise InputError(f"the graph has {n:,} nodes, {most}: take a part of it (--nodes)")
        if y is None:
            if graph.multi_label or graph.num_classes < 2 or bool((graph.y < 0).any()):
                raise InputError("the labels are not one of several classes for every node: give y, [n] numbers")
            y = 2.0 * graph.y.double() / (graph.num_classes - 1) - 1.0
        return cls(graph.x.double().cpu(), graph.edge_index.cpu(), y.double().cpu())

    @cached_property
    def checksum(self) -> str:
        """A hash of X, the edges and y; stored measurements are recognised by it."""
        stored = b"".join(tensor.cpu().numpy().tobytes() for tensor in (self.x, self.edge_index, self.y))
        return hashlib.sha256(stored).hexdigest()[:16]

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.x.shape[0]

    @property
    def d(self) -> int:
        """The number of input features. Θ is d x d_1; the paper writes n x d_1."""
        return self.x.shape[1]

    @cached_property
    def degrees(self) -> Tensor:
        """D_ii, [n]."""
        return adjacency(self.edge_index, self.n).sum(dim=1)

    @cached_property
    def a_bar(self) -> Tensor:
        """Ā, [n, n]."""
        return aggregation(self.edge_index, self.n)

    @cached_property
    def x_hat(self) -> Tensor:
        """X̂ = ĀX, [n, d]."""
        return self.a_bar @ self.x

    @cached_property
    def spectrum(self) -> Tensor:
        """The eigenvalues of G^∞ for m = 1, ascending, [n]; for m sub-GCNs, divide them by m."""
        return torch.linalg.eigvalsh(self.a_bar @ limit_gram(self.x_hat, 1) @ self.a_bar)

    @cached_property
    def mass(self) -> float:
        """‖Ā²‖_{1,1}, the sum of the entries of Ā²; at most 4n, and 4n where all degrees are equal."""
        return float((self.a_bar @ self.a_bar).sum())
