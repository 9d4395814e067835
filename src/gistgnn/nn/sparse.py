"""Sparse matrices that multiply dense features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.pattern import Pattern


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

    @classmethod
    def from_csr(cls, csr: Tensor) -> SparseMatrix:
        """The matrix of a torch CSR tensor, such as `csr` gives, which is shared."""
        pattern = Pattern(csr.crow_indices(), csr.col_indices(), (csr.shape[0], csr.shape[1]))
        return cls.from_pattern(pattern, csr.values())

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

    def select_rows(self, index: Tensor) -> SparseMatrix:
        """The rows ``index``: [k], in that order, which may repeat: [k, C]."""
        pattern, entries = self.pattern.select_rows(index)
        return SparseMatrix.from_pattern(pattern, self.value.index_select(0, entries))

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
