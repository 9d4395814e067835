"""Layers that aggregate neighbours with one constant operator."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.nn.gnn import Layer
from gistgnn.nn.sparse import SparseMatrix


def project(h: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return H Wᵀ + b: [N, d_out], for dense or sparse ``h``: [N, d_in] and ``weight``: [d_out, d_in]."""
    if isinstance(h, Tensor):
        return F.linear(h, weight, bias)
    out = h @ weight.t()
    return out if bias is None else out + bias


class Propagation(Layer):
    """A layer that computes Ā H Wᵀ as (Ā H) Wᵀ or Ā (H Wᵀ), whichever is cheaper.

    The projection costs the same in both orders, so the sparse product decides: nnz·d_in multiply-adds before the
    projection, nnz·d_out after it. Sparse features are projected first, because Ā H would be dense. A graph's constant
    features are aggregated first: the product is computed once and reused (see `Adjacency.cache_products`).
    """

    operator: Operator  # the name of Ā among the graph's operators
    weight: nn.Parameter

    @property
    def neighbour_weight(self) -> Tensor:
        """W: [d_out, d_in]."""
        return self.weight

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return H or H Wᵀ: [N, d_in or d_out]."""
        d_out, d_in = self.neighbour_weight.shape
        if isinstance(x, Tensor) and (d_in <= d_out or adj.caches(x)):
            return x
        return project(x, self.neighbour_weight)

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Return Ā Z."""
        return adj.aggregate(self.operator, z)

    def aggregate_block(self, z: Tensor, scores: Tensor, adj: Adjacency, nodes: slice, columns: slice) -> Tensor:
        """Return some rows of Ā times some columns of Z."""
        operator: SparseMatrix = getattr(adj, self.operator)
        return operator.rows(nodes) @ z

    def is_projected(self, x: Tensor | SparseMatrix, a: Tensor) -> bool:
        """Tell whether ``a`` is Ā (H Wᵀ); otherwise it is Ā H."""
        return isinstance(x, SparseMatrix) or a.shape[1] != self.neighbour_weight.shape[1]
