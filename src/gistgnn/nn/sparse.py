"""Sparse matrices that multiply dense features, and the operators of a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.pattern import Pattern

Operator = Literal["gcn", "mean"]
"""The operators Ā of an `Adjacency`, by the names of its attributes."""


class SparseMatrix:
    """A constant CSR matrix A: [R, C] for products A @ h with dense h: [C, d].

    Forward is one CSR product, backward one with the transpose, which is prepared at the first backward and kept. The
    product is differentiable in h, to any order, and not in the values.

    Args:
        row: row of every entry, [nnz], in any order.
        col: column of every entry, [nnz].
        value: value of every entry, [nnz], floating point; values at the same place add up.
        shape: (R, C).

    Raises:
        InputError: the three vectors differ in length, or an index is outside the shape.
    """

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> None:
        if value.shape != row.shape or not value.is_floating_point():
            raise InputError(
                f"values are {value.dtype} of shape {list(value.shape)}: give one floating-point value for each of "
                f"the {row.numel()} entries"
            )
        self.pattern, order = Pattern.from_entries(row, col, shape)
        self.value = value.detach() if order is None else value.detach().index_select(0, order)

    @classmethod
    def from_pattern(cls, pattern: Pattern, value: Tensor) -> SparseMatrix:
        """The matrix with the entries of ``pattern``, shared, and ``value``: [nnz] in the pattern's order."""
        matrix = cls.__new__(cls)
        matrix.pattern, matrix.value = pattern, value
        return matrix

    @classmethod
    def from_dense(cls, x: Tensor) -> SparseMatrix:
        """The matrix of the non-zero entries of ``x``: [R, C]."""
        if x.dim() != 2:
            raise InputError(f"x has shape {list(x.shape)}: give a matrix [R, C]")
        row, col = x.nonzero(as_tuple=True)
        return cls(row, col, x[row, col], (x.shape[0], x.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.pattern.shape

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.pattern.nnz

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values, and of the features that the matrix multiplies."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Where the matrix lies."""
        return self.value.device

    @cached_property
    def csr(self) -> Tensor:
        """The matrix as a torch CSR tensor, without a copy."""
        return self.pattern.csr(self.value)

    @cached_property
    def _transposed(self) -> SparseMatrix:
        pattern, order = self.pattern.transpose
        return SparseMatrix.from_pattern(pattern, self.value.index_select(0, order))

    def t(self) -> SparseMatrix:
        """The transpose: [C, R], computed once."""
        return self._transposed

    def to(self, *args: Any, **kwargs: Any) -> SparseMatrix:
        """The matrix on another device or with values of another type; arguments as for ``Tensor.to``."""
        value = self.value.to(*args, **kwargs)
        return self if value is self.value else SparseMatrix.from_pattern(self.pattern.to(value.device), value)

    def rows(self, nodes: slice) -> SparseMatrix:
        """The rows from nodes.start to nodes.stop: [n, C], entries shared."""
        pattern, entries = self.pattern.rows(nodes)
        return SparseMatrix.from_pattern(pattern, self.value[entries])

    def select_columns(self, index: Tensor) -> SparseMatrix:
        """The columns ``index``: [k], in that order: [R, k].

        Raises:
            InputError: an index is outside 0..C-1 or occurs twice.
        """
        rows, columns = self.shape
        index = index.to(self.device, torch.int64)
        places = torch.arange(index.numel(), device=self.device)
        if index.numel() and not bool(((index >= 0) & (index < columns)).all()):
            raise InputError(f"columns {int(index.min())}..{int(index.max())}: give indices within 0..{columns - 1}")
        place = places.new_full((columns,), -1)
        place[index] = places
        if not torch.equal(place[index], places):
            raise InputError(f"{index.numel()} column indices with repetitions: give every column at most once")
        col = place.index_select(0, self.pattern.col)
        keep = col >= 0
        pattern = Pattern.from_sorted(self.pattern.row[keep], col[keep], (rows, index.numel()))
        return SparseMatrix.from_pattern(pattern, self.value[keep])

    def to_dense(self) -> Tensor:
        """The dense matrix: [R, C]."""
        dense = self.value.new_zeros(self.shape)
        return dense.index_put_((self.pattern.row.long(), self.pattern.col.long()), self.value, accumulate=True)

    def __matmul__(self, h: Tensor) -> Tensor:
        if h.dim() != 2 or h.shape[0] != self.shape[1]:
            raise InputError(
                f"product of {list(self.shape)} with {list(h.shape)}: the right side has to be [{self.shape[1]}, d]"
            )
        if h.dtype == torch.bfloat16:  # of autocast; the CPU has no such product
            h = h.to(self.dtype)
        if h.dtype != self.dtype:
            raise InputError(f"product of {self.dtype} with {h.dtype}: convert one of them by .to(dtype)")
        product: Tensor = _Product.apply(self, h)
        return product

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype}, device='{self.device}')"


class _Product(torch.autograd.Function):
    """A @ h with the gradient Aᵀ @ g, for ``h``: [C, d], or [m, C, d] of m sub-GCNs at once."""

    @staticmethod
    def forward(matrix: SparseMatrix, h: Tensor) -> Tensor:
        out = h.new_empty(*h.shape[:-2], matrix.shape[0], h.shape[-1])
        for target, part in zip(out, h, strict=True) if h.dim() == 3 else ((out, h),):
            # In place with beta = 0: matmul would fill a matrix with zeros and copy it first.
            target.addmm_(matrix.csr, part, beta=0)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SparseMatrix, Tensor], output: Tensor) -> None:
        ctx.matrix = inputs[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, _Product.apply(ctx.matrix.t(), grad)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[None, int], matrix: SparseMatrix, h: Tensor) -> tuple[Tensor, int]:
        return _Product.apply(matrix, h.movedim(in_dims[1], 0)), 0


class Adjacency:
    """The structure of a graph or a batch, with the operators that layers multiply by.

    Every operator is computed at its first use and kept: layers and models that are given the same Adjacency share it.

    Args:
        edge_index: [2, E], row 0 the sources, row 1 the targets; repeated edges count as often as they occur.
        num_nodes: N.
        dtype: type of the operators' values; that of the features.

    Raises:
        InputError: ``edge_index`` is not an integer tensor [2, E], or names a node outside 0..N-1.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> None:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index has shape {list(edge_index.shape)}: give [2, E], sources and targets")
        source, target = edge_index
        self.pattern, _ = Pattern.from_entries(target, source, (num_nodes, num_nodes), names=("target", "source"))
        self.dtype = dtype
        self.keep(None)

    @classmethod
    def from_pattern(cls, pattern: Pattern, dtype: torch.dtype = torch.float32) -> Adjacency:
        """The graph whose edges are the entries (target, source) of ``pattern``: [N, N], shared."""
        adjacency = cls.__new__(cls)
        adjacency.pattern, adjacency.dtype = pattern, dtype
        adjacency.keep(None)
        return adjacency

    def keep(self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None) -> None:
        """Keep the products of the operators with the constant features ``x``: [N, F], from their first use on.

        Args:
            x: the tensor itself, not one that is equal to it; None: of none.
            product: gives the product with an operator where it is not that of this graph's own, such as a part of
                a larger graph's.
        """
        self._constant = x
        self._product = product or (lambda operator: getattr(self, operator) @ x)
        self._products: dict[Operator, Tensor] = {}
        self._joined: dict[Operator, Tensor] = {}

    def keeps(self, h: Tensor) -> bool:
        """Whether products with ``h`` are kept."""
        return h is self._constant

    def has_kept(self, operator: Operator) -> bool:
        """Whether the operator's product with the constant features has been computed."""
        return operator in self._products

    def aggregate(self, operator: Operator, h: Tensor) -> Tensor:
        """Ā h: [N, d], for ``h``: [N, d]; from memory where it is kept."""
        if not self.keeps(h):
            matrix: SparseMatrix = getattr(self, operator)
            return matrix @ h
        if operator not in self._products:
            self._products[operator] = self._product(operator)
        return self._products[operator]

    def joined(self, operator: Operator, x: Tensor) -> Tensor:
        """[x, Ā x]: [N, 2F], of the features ``x`` whose products are kept; it is kept too."""
        if operator not in self._joined:
            self._joined[operator] = torch.cat([x, self.aggregate(operator, x)], dim=1)
            self._products[operator] = self._joined[operator][:, x.shape[1] :]  # not held twice
        return self._joined[operator]

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.pattern.shape[0]

    @property
    def num_edges(self) -> int:
        """E, self-loops as given."""
        return self.pattern.nnz

    @property
    def device(self) -> torch.device:
        """Where the structure lies."""
        return self.pattern.col.device

    @cached_property
    def gcn(self) -> SparseMatrix:
        """Ā = D̃^-1/2 (A + I) D̃^-1/2 of eq. 1: [N, N], with one self-loop per node and D̃ the in-degrees of A + I."""
        pattern = self.attention
        scale = pattern.rowptr.diff().to(self.dtype).rsqrt()
        return SparseMatrix.from_pattern(
            pattern, scale.index_select(0, pattern.row) * scale.index_select(0, pattern.col)
        )

    @cached_property
    def mean(self) -> SparseMatrix:
        """D^-1 A: [N, N], the mean over the incoming edges; 0 for a node without any."""
        scale = self.pattern.rowptr.diff().to(self.dtype).reciprocal()
        return SparseMatrix.from_pattern(self.pattern, scale.index_select(0, self.pattern.row))

    @cached_property
    def attention(self) -> Pattern:
        """The structure over which a node attends, by target: its sources and itself, once."""
        return self.pattern.with_self_loops()

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        """The graph on another device or with operators of another type; arguments as for ``Tensor.to``."""
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.dtype == self.dtype and like.device == self.device:
            return self
        return Adjacency.from_pattern(self.pattern.to(like.device), like.dtype)

    def __repr__(self) -> str:
        return f"Adjacency(num_nodes={self.num_nodes}, num_edges={self.num_edges}, device='{self.device}')"


def as_adjacency(adj: Adjacency | Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Adjacency:
    """``adj`` itself, or the Adjacency of an ``edge_index``: [2, E], for features of ``num_nodes`` rows and ``dtype``.

    Raises:
        InputError: an Adjacency of another number of nodes or another type.
    """
    if isinstance(adj, Tensor):
        return Adjacency(adj, num_nodes, dtype)
    if adj.num_nodes != num_nodes:
        raise InputError(f"the graph has {adj.num_nodes} nodes and x {num_nodes} rows: give one row per node")
    if adj.dtype != dtype:
        raise InputError(f"the graph's operators are {adj.dtype} and x is {dtype}: use adj.to({dtype})")
    return adj
