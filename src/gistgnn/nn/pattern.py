"""Where the entries of a CSR matrix are, apart from their values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from gistgnn.errors import InputError

_INT32_MAX = torch.iinfo(torch.int32).max

# torch warns once per process when the first CSR tensor is made. It is made here, under a filter of our own: no
# change of the filters around a later product, which other threads would see.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
torch.sparse_csr_tensor([0], [], [], (0, 0), device="cpu", check_invariants=False)


class Pattern:
    """The places of a CSR matrix's entries, sorted by row; an entry may occur more than once.

    ``rowptr``: [R + 1] and ``col``: [nnz] are int32 wherever the shape and the number of entries fit, which the CPU's
    products take without a conversion. ``shape`` is (R, C).
    """

    def __init__(self, rowptr: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self.rowptr = rowptr
        self.col = col
        self.shape = shape

    @classmethod
    def from_entries(
        cls, row: Tensor, col: Tensor, shape: tuple[int, int], names: tuple[str, str] = ("row", "column")
    ) -> tuple[Pattern, Tensor | None]:
        """The pattern of the entries (row[k], col[k]), and the order that sorts them by row (None: sorted already).

        Entries of one row keep their order. ``row``, ``col``: [nnz], integers, called ``names`` in errors.

        Raises:
            InputError: the indices are not two integer vectors of one length, or do not fit the shape.
        """
        _check_indices(row, shape[0], names[0])
        _check_indices(col, shape[1], names[1])
        if row.shape != col.shape:
            raise InputError(f"{row.numel()} row and {col.numel()} column indices: give one of each per entry")
        dtype = index_dtype(*shape, row.numel())
        row, col, order = row.to(dtype), col.to(dtype), None
        if not bool((row[1:] >= row[:-1]).all()):
            row, order = torch.sort(row, stable=True)
            col = col.index_select(0, order)
        return cls.from_sorted(row, col, shape), order

    @classmethod
    def from_sorted(cls, row: Tensor, col: Tensor, shape: tuple[int, int]) -> Pattern:
        """The pattern of valid entries that are sorted by row. ``row``, ``col``: [nnz]."""
        dtype = index_dtype(*shape, row.numel())
        rows = torch.arange(shape[0] + 1, dtype=row.dtype, device=row.device)
        rowptr = torch.searchsorted(row.contiguous(), rows, out_int32=dtype == torch.int32)
        return cls(rowptr, col.to(dtype), shape)

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return self.col.numel()

    @cached_property
    def row(self) -> Tensor:
        """Row of every entry: [nnz], ascending."""
        rows = torch.arange(self.shape[0], dtype=self.col.dtype, device=self.col.device)
        return rows.repeat_interleave(self.rowptr.diff(), output_size=self.nnz)

    @cached_property
    def transpose(self) -> tuple[Pattern, Tensor]:
        """The transposed pattern, and the order in which it takes this one's entries: [nnz], int64."""
        col, order = torch.sort(self.col, stable=True)
        return Pattern.from_sorted(col, self.row.index_select(0, order), self.shape[::-1]), order

    def with_self_loops(self) -> Pattern:
        """The pattern with exactly one entry (i, i) in every row i, as the row's last: the self-loops of Ā."""
        return self.looped()[0]

    def looped(self) -> tuple[Pattern, Tensor, Tensor]:
        """`with_self_loops`, which of this pattern's entries it has ([nnz], bool), and at which places."""
        size = self.shape[0]
        keep = self.row != self.col
        row, col = self.row[keep], self.col[keep]
        nodes = torch.arange(size, dtype=col.dtype, device=col.device)
        # An entry moves on by the loops of the rows before its own: no second sort.
        place = torch.arange(row.numel(), device=col.device) + row
        bounds = torch.searchsorted(row, nodes, right=True) + nodes
        dtype = index_dtype(size, row.numel() + size)
        looped = col.new_empty(row.numel() + size, dtype=dtype)
        looped[place] = col.to(dtype)
        looped[bounds] = nodes.to(dtype)
        rowptr = torch.cat([bounds.new_zeros(1), bounds + 1]).to(dtype)
        return Pattern(rowptr, looped, self.shape), keep, place

    def pieces(self, limit: int) -> Iterator[tuple[Pattern, slice]]:
        """Patterns of at most ``limit`` consecutive entries each, and which entries they hold."""
        for start in range(0, self.nnz, max(limit, 1)):
            stop = min(start + limit, self.nnz)
            yield Pattern(self.rowptr.clamp(start, stop) - start, self.col[start:stop], self.shape), slice(start, stop)

    def rows(self, nodes: slice) -> tuple[Pattern, slice]:
        """The pattern of the rows ``nodes``, from nodes.start to nodes.stop, and which entries it holds (shared)."""
        rowptr = self.rowptr[nodes.start : nodes.stop + 1]
        entries = slice(int(rowptr[0]), int(rowptr[-1]))
        shape = (nodes.stop - nodes.start, self.shape[1])
        return Pattern(rowptr - entries.start, self.col[entries], shape), entries

    def select_rows(self, index: Tensor) -> tuple[Pattern, Tensor]:
        """The pattern of the rows ``index``, [k] in any order, and which entries it holds: [nnz]."""
        starts = self.rowptr[:-1].index_select(0, index)
        rowptr = torch.cat([starts.new_zeros(1), self.rowptr.diff().index_select(0, index).cumsum(0)])
        rowptr = rowptr.to(self.rowptr.dtype)
        moved = (starts - rowptr[:-1]).repeat_interleave(rowptr.diff())
        entries = moved + torch.arange(moved.numel(), dtype=moved.dtype, device=moved.device)
        return Pattern(rowptr, self.col.index_select(0, entries), (index.numel(), self.shape[1])), entries

    def top(self, rows: int, columns: int) -> Pattern:
        """The first rows, whose entries all lie in the first columns."""
        return Pattern(self.rowptr[: rows + 1], self.col[: int(self.rowptr[rows])], (rows, columns))

    def within(self, part: Tensor) -> Pattern:
        """The square pattern without the entries whose row and column are of two parts; ``part``: [R], integers."""
        part = part.to(self.col.dtype)
        keep = part.index_select(0, self.col) == part.repeat_interleave(self.rowptr.diff(), output_size=self.nnz)
        before = torch.cat([self.rowptr.new_zeros(1), keep.cumsum(0, dtype=self.rowptr.dtype)])
        return Pattern(before.index_select(0, self.rowptr), self.col[keep], self.shape)

    def csr(self, value: Tensor) -> Tensor:
        """The torch CSR tensor with these entries and values (``value``: [nnz]); nothing is copied."""
        return torch.sparse_csr_tensor(self.rowptr, self.col, value, self.shape, check_invariants=False)

    def to(self, device: torch.device) -> Pattern:
        """The same pattern on another device."""
        if device == self.col.device:
            return self
        return Pattern(self.rowptr.to(device), self.col.to(device), self.shape)


def index_dtype(*sizes: int) -> torch.dtype:
    """The type of a pattern's indices, given its shape and number of entries."""
    return torch.int32 if max(sizes) <= _INT32_MAX else torch.int64


def _check_indices(index: Tensor, size: int, axis: str) -> None:
    if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
        raise InputError(
            f"{axis} indices are {index.dtype} of shape {list(index.shape)}: give an int64 or int32 vector [nnz]"
        )
    if index.numel():
        low, high = (int(bound) for bound in index.aminmax())
        if low < 0 or high >= size:
            raise InputError(
                f"{axis} index {low if low < 0 else high} is outside 0..{size - 1}: correct it, or the size {size}"
            )
