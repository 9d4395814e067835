"""Sparse matrices that multiply dense features, and the weights of their entries."""

from functools import cached_property
from inspect import Signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.features import places_of


class Function(torch.autograd.Function):
    """torch's `Function`, without binding arguments to ``forward``'s signature.

    The binding takes longer than a product. So all arguments have to be given, by position.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" in vars(cls):
            cls.forward.__signature__ = _ByPosition()  # type: ignore[attr-defined]


class _ByPosition(Signature):
    """Takes arguments as they are: all of them, by position."""

    def bind(self, *args: Any, **_: Any) -> Any:
        return SimpleNamespace(args=args, kwargs={}, apply_defaults=_leave_arguments)


def _leave_arguments() -> None:
    """Add no defaults, as no argument is missing."""


class AtVersion:
    """A tensor, and the number of times that it has been written into so far."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._version = _version_of(tensor)

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing has been written into the tensor since."""
        return _version_of(self.tensor) == self._version

    def is_same(self, tensor: Any) -> bool:
        """Tell whether this is the tensor, with the values that it had."""
        return tensor is self.tensor and self.is_unchanged


def _version_of(tensor: Tensor) -> int:
    # torch does not count for inference tensors
    return 0 if tensor.is_inference() else tensor._version


class SparseMatrix:
    """A constant CSR matrix A: [R, C] for products A @ h with dense h: [C, d].

    The forward pass is one CSR product. The backward pass is one product with the transpose, which
    is prepared at the first backward pass and kept. The product is differentiable in h to any
    order, but not in the values.

    Args:
        row: [nnz], row of every entry, in any order.
        col: [nnz], column of every entry.
        value: [nnz], floating-point value of every entry. Values at the same place add up.
        shape: (R, C).
    """

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> None:
        if value.shape != row.shape or not value.is_floating_point():
            kind = f"{value.dtype} of shape {list(value.shape)}"
            raise InputError(
                f"values are {kind}: give one floating-point value for each of the {row.numel()} "
                "entries"
            )
        self.pattern, order = CSR.from_entries(row, col, shape)
        self.value = value.detach() if order is None else value.detach().index_select(0, order)

    @classmethod
    def from_pattern(cls, pattern: CSR, value: Tensor) -> "SparseMatrix":
        """Return the matrix of ``pattern`` and ``value``, without a copy.

        ``value`` is [nnz], in the pattern's order.
        """
        matrix = cls.__new__(cls)
        matrix.pattern = pattern
        matrix.value = value
        return matrix

    @classmethod
    def from_dense(cls, x: Tensor) -> "SparseMatrix":
        """Return the matrix of the non-zero entries of ``x``: [R, C]."""
        if x.dim() != 2:
            raise InputError(f"x has shape {list(x.shape)}: give a matrix [R, C]")
        row, col = x.nonzero(as_tuple=True)
        return cls(row, col, x[row, col], (x.shape[0], x.shape[1]))

    @classmethod
    def from_csr(cls, csr: Tensor) -> "SparseMatrix":
        """Return the matrix of a torch CSR tensor, such as `csr`, without a copy."""
        return cls.from_pattern(places_of(csr), csr.values())

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values; features must have the same type."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        return self.value.device

    @cached_property
    def csr(self) -> Tensor:
        """The matrix as a torch CSR tensor, without a copy."""
        return self.pattern.with_values(self.value)

    def t(self) -> "SparseMatrix":
        """Return the transpose: [C, R], computed once."""
        if "_transposed" not in self.__dict__:
            pattern, order = self.pattern.transpose
            self._transposed = SparseMatrix.from_pattern(pattern, self.value.index_select(0, order))
        return self._transposed

    def to(self, *args: Any, **kwargs: Any) -> "SparseMatrix":
        """Return the matrix on another device or with another dtype.

        The arguments are those of ``Tensor.to``.
        """
        value = self.value.to(*args, **kwargs)
        return (
            self
            if value is self.value
            else SparseMatrix.from_pattern(self.pattern.to(value.device), value)
        )

    def rows(self, nodes: slice | Tensor) -> "SparseMatrix":
        """Return some rows.

        They are consecutive ones, [n, C], as a view; or [k], in any order and possibly repeated.
        """
        if isinstance(nodes, slice) and nodes == slice(0, self.shape[0]):
            return self
        pattern, entries = self.pattern.rows(nodes)
        value = (
            self.value[entries]
            if isinstance(entries, slice)
            else self.value.index_select(0, entries)
        )
        return SparseMatrix.from_pattern(pattern, value)

    def select_columns(self, index: Tensor) -> "SparseMatrix":
        """Return the columns ``index``: [k] distinct numbers, in that order, as a matrix [R, k]."""
        rows, columns = self.shape
        index = index.to(self.device, torch.int64)
        new_columns = index.new_full((columns,), -1)
        new_columns[index] = torch.arange(index.numel(), device=self.device)
        col = new_columns.index_select(0, self.pattern.col)
        keep = col >= 0
        pattern = CSR.from_sorted(self.pattern.row[keep], col[keep], (rows, index.numel()))
        return SparseMatrix.from_pattern(pattern, self.value[keep])

    def to_dense(self) -> Tensor:
        dense = self.value.new_zeros(self.shape)
        return dense.index_put_(
            (self.pattern.row.long(), self.pattern.col.long()), self.value, accumulate=True
        )

    def __matmul__(self, h: Tensor) -> Tensor:
        if h.dim() != 2 or h.shape[0] != self.shape[1]:
            shapes = f"{list(self.shape)} with {list(h.shape)}"
            raise InputError(f"product of {shapes}: the right side has to be [{self.shape[1]}, d]")
        if h.dtype == torch.bfloat16:  # from autocast; the CPU has no sparse product in bfloat16
            h = h.to(self.dtype)
        if h.dtype != self.dtype:
            raise InputError(
                f"product of {self.dtype} with {h.dtype}: convert one of them by .to(dtype)"
            )
        return Product.apply(self, h)


def add_product(matrix: SparseMatrix, h: Tensor, out: Tensor, *, beta: int) -> None:
    """Write A @ h to ``out``, or add it with a ``beta`` of 1; without a gradient.

    ``h`` is [C, d] or [m, C, d], and ``out`` is [R, d] or [m, R, d].
    """
    if h.dim() == 3 and h.device.type == "cuda":
        # One product of the matrices side by side: on a GPU, starting m products takes longer than
        # moving the features.
        m, columns, d = h.shape
        side_by_side = matrix.csr @ h.transpose(0, 1).reshape(columns, m * d)
        product = side_by_side.view(-1, m, d).transpose(0, 1)
        if beta:
            out.add_(product)
        else:
            out.copy_(product)
        return
    pairs = zip(out, h, strict=True) if h.dim() == 3 else [(out, h)]
    for target, features in pairs:
        # In place: matmul would first fill a matrix with zeros and copy it.
        target.addmm_(matrix.csr, features, beta=beta)


class Product(Function):
    """A @ h with the gradient Aᵀ @ g, for ``h``: [C, d], or [m, C, d] for m sub-GCNs at once."""

    @staticmethod
    def forward(matrix: SparseMatrix, h: Tensor) -> Tensor:
        out = h.new_empty(*h.shape[:-2], matrix.shape[0], h.shape[-1])
        add_product(matrix, h, out, beta=0)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SparseMatrix, Tensor], output: Tensor) -> None:
        ctx.matrix = inputs[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, Product.apply(ctx.matrix.t(), grad)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[None, int], matrix: SparseMatrix, h: Tensor
    ) -> tuple[Tensor, int]:
        return Product.apply(matrix, h.movedim(in_dims[1], 0)), 0


# Weights of edges, as in PyG's GCNConv: a missing self-loop has weight 1. Below, ``loop_of``: [R]
# is the column of each row's self-loop, as for `CSR.looped`; by default row i has (i, i).


def check_weights(weight: Tensor) -> None:
    """Raise InputError if a weight is negative."""
    if weight.numel() and (least := float(weight.min())) < 0:
        raise InputError(
            f"edge_weight holds {least:g}; expected 0 or more: models of gistgnn.nn divide by its "
            "sums"
        )


def row_sums(pattern: CSR, value: Tensor) -> Tensor:
    """Return the sum of every row's values: [R], for ``value``: [nnz]."""
    matrix = SparseMatrix.from_pattern(pattern, value)
    return (matrix @ value.new_ones(pattern.shape[1], 1)).squeeze(1)


def without_zeros(degree: Tensor) -> Tensor:
    """Return degrees [n] with infinity in place of 0, so that dividing by them gives 0."""
    return torch.where(degree > 0, degree, torch.inf)


def self_loops(pattern: CSR, loop_of: Tensor | None = None) -> Tensor:
    """Return the mask of the entries that are self-loops: [nnz]."""
    return (pattern.row if loop_of is None else pattern.repeated(loop_of)) == pattern.col


def loop_weights(pattern: CSR, weight: Tensor, loop_of: Tensor | None = None) -> Tensor:
    """Return the weight of every row's self-loop: [R]; 1 where there is none."""
    loops = weight.new_ones(pattern.shape[0])
    is_loop = self_loops(pattern, loop_of)
    loops[pattern.row[is_loop].long()] = weight[is_loop]
    return loops


def looped(
    pattern: CSR, weight: Tensor, loops: Tensor | None = None, loop_of: Tensor | None = None
) -> tuple[CSR, Tensor]:
    """Return the entries with one self-loop in every row, and their weights.

    ``loops``: [R] are the weights of the self-loops.
    """
    with_loops, keep, new_places = pattern.looped(loop_of)
    value = weight.new_ones(with_loops.num_edges)
    value[new_places] = weight[keep]
    if loops is not None:
        value[with_loops.rowptr[1:].long() - 1] = loops  # a row's self-loop is its last entry
    return with_loops, value


def with_self(
    pattern: CSR, weight: Tensor | None, dtype: torch.dtype, loop_of: Tensor | None = None
) -> SparseMatrix:
    """Return A + I: [R, C] for A's entries and their ``weight``: [nnz].

    A given self-loop counts beside the 1 of I.
    """
    if weight is None:
        weight = torch.ones(pattern.num_edges, dtype=dtype, device=pattern.col.device)
    loop_weight = torch.where(self_loops(pattern, loop_of), weight, 0)
    loops = weight.new_ones(pattern.shape[0]).index_add_(0, pattern.row, loop_weight)
    return SparseMatrix.from_pattern(*looped(pattern, weight, loops, loop_of))
