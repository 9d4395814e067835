"""Layers that sum their neighbours by one constant operator."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.nn.gnn import Layer
from gistgnn.nn.sparse import SparseMatrix


def project(h: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """H Wᵀ + b: [N, d_out], for ``h``: [N, d_in], dense or sparse, and ``weight``: [d_out, d_in]."""
    if isinstance(h, Tensor):
        return F.linear(h, weight, bias)
    out = h @ weight.t()
    return out if bias is None else out + bias


class Propagation(Layer):
    """A layer that multiplies its neighbours by Ā and a weight W, in the cheaper of the orders (Ā H) Wᵀ and Ā (H Wᵀ).

    Both orders pay the same for the projection, so the sparse product decides: nnz·d_in multiply-adds before it,
    nnz·d_out after. Sparse features are projected first: Ā H would fill in. The constant features of a graph are
    summed first, as that is done once for all who use the graph (see `Adjacency.keep`).

    Attributes:
        operator: which of the graph's operators is Ā.
    """

    operator: Operator
    weight: nn.Parameter

    @property
    def neighbour_weight(self) -> Tensor:
        """W: [d_out, d_in]."""
        return self.weight

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """H, or H Wᵀ: [N, d_in or d_out]."""
        d_out, d_in = self.neighbour_weight.shape
        if isinstance(x, Tensor) and (d_in <= d_out or adj.keeps(x)):
            return x
        return project(x, self.neighbour_weight)

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Ā Z."""
        return adj.aggregate(self.operator, z)

    def aggregate_block(self, z: Tensor, scores: Tensor, adj: Adjacency, nodes: slice, columns: slice) -> Tensor:
        """Some rows of Ā times some columns of Z."""
        operator: SparseMatrix = getattr(adj, self.operator)
        return operator.rows(nodes) @ z

    def is_projected(self, x: Tensor | SparseMatrix, a: Tensor) -> bool:
        """Whether ``a`` is Ā (H Wᵀ), and not Ā H."""
        return isinstance(x, SparseMatrix) or a.shape[1] != self.neighbour_weight.shape[1]
