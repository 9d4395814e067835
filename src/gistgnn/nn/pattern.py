"""`Pattern`: the places of a CSR matrix's entries, without their values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.function import has_values_here
from gistgnn.utils.transfer import to_device

# torch warns when a process makes its first CSR tensor. Make it here, under a filter: changing the filters around a
# later product would affect other threads.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
torch.sparse_csr_tensor([0], [], [], (0, 0), device="cpu", check_invariants=False)

_PIECE = 2**20  # rows whose numbers of entries are in memory at once


class Pattern:
    """The places of a CSR matrix's entries, sorted by row. An entry may occur more than once.

    ``rowptr``: [R + 1] and ``col``: [nnz] are int32 if the shape and the number of entries fit: the CPU's products
    then need no conversion. ``shape`` is (R, C).

    Attributes:
        loops: the number of entries (i, i), where it is known without asking a GPU; None: it is not.
    """

    loops: int | None = None

    def __init__(self, rowptr: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self.rowptr, self.col, self.shape = rowptr, col, shape

    @classmethod
    def from_entries(
        cls, row: Tensor, col: Tensor, shape: tuple[int, int], names: tuple[str, str] = ("row", "column")
    ) -> tuple[Pattern, Tensor | None]:
        """Return the pattern of the entries (row[k], col[k]), and the order that sorts them by row (None: sorted).

        Entries of one row keep their order. ``row``, ``col``: [nnz] integers. ``names`` is what errors call them.

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
        """Return the pattern of valid entries that are sorted by row. ``row``, ``col``: [nnz]."""
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

    def repeated(self, values: Tensor) -> Tensor:
        """Return the value of every entry's row: [nnz], for ``values``: [R]. Unlike `row`, it keeps nothing."""
        return values.repeat_interleave(self.rowptr.diff(), output_size=self.nnz)

    @cached_property
    def most_entries(self) -> int:
        """Entries of the fullest row."""
        starts = range(0, self.shape[0], _PIECE)
        return max((int(self.rowptr[start : start + _PIECE + 1].diff().max()) for start in starts), default=0)

    @cached_property
    def transpose(self) -> tuple[Pattern, Tensor]:
        """The transposed pattern, and for each of its entries the index of that entry here: [nnz], int64."""
        if has_values_here(self.rowptr, self.col):
            return self._transpose_on_cpu()
        col, order = torch.sort(self.col, stable=True)
        return Pattern.from_sorted(col, self.row.index_select(0, order), self.shape[::-1]), order

    def _transpose_on_cpu(self) -> tuple[Pattern, Tensor]:
        """Return `transpose` by counting, which takes a quarter of the time of sorting."""
        from scipy.sparse import csr_array  # loading it takes 0.2 s

        places = np.arange(self.nnz, dtype=self.col.numpy().dtype)
        turned = csr_array((places, self.col.numpy(), self.rowptr.numpy()), shape=self.shape).tocsc()
        rowptr, col, order = (torch.from_numpy(part) for part in (turned.indptr, turned.indices, turned.data))
        dtype = index_dtype(*self.shape, self.nnz)
        return Pattern(rowptr.to(dtype), col.to(dtype), self.shape[::-1]), order.long()

    def with_self_loops(self) -> Pattern:
        """Return the pattern with exactly one entry (i, i) in every row i, at the row's end: the self-loops of Ā."""
        return self.looped()[0]

    def looped(self) -> tuple[Pattern, Tensor, Tensor]:
        """Return `with_self_loops`, an index of the entries it keeps (a mask, or places), and where it puts them."""
        size = self.shape[0]
        keep = self._off_diagonal()
        row, col = self.row[keep], self.col[keep]
        nodes = torch.arange(size, dtype=col.dtype, device=col.device)
        # An entry moves back by one place per earlier row, for that row's self-loop: no second sort.
        place = torch.arange(row.numel(), device=col.device) + row
        bounds = torch.searchsorted(row, nodes, right=True) + nodes
        dtype = index_dtype(size, row.numel() + size)
        looped = col.new_empty(row.numel() + size, dtype=dtype)
        looped[place] = col.to(dtype)
        looped[bounds] = nodes.to(dtype)
        rowptr = torch.cat([bounds.new_zeros(1), bounds + 1]).to(dtype)
        return Pattern(rowptr, looped, self.shape), keep, place

    def _off_diagonal(self) -> Tensor:
        """Return an index of the entries that are not (i, i): a mask [nnz], or their places if it is known how many."""
        off = self.row != self.col
        if self.loops is None:
            return off
        # A mask would make the host wait for the GPU, to count them. The others share one place, at the end.
        count = self.nnz - self.loops
        place = torch.where(off, off.cumsum(0) - 1, count)
        entries = torch.arange(self.nnz, device=place.device)
        return entries.new_empty(count + 1).scatter_(0, place, entries)[:count]

    def pieces(self, limit: int) -> Iterator[tuple[Pattern, slice]]:
        """Cut the pattern into pieces of at most ``limit`` consecutive entries; yield each with the slice it holds."""
        for start in range(0, self.nnz, max(limit, 1)):
            stop = min(start + limit, self.nnz)
            yield Pattern(self.rowptr.clamp(start, stop) - start, self.col[start:stop], self.shape), slice(start, stop)

    def rows(self, nodes: slice) -> tuple[Pattern, slice]:
        """Return the rows from nodes.start to nodes.stop, as a view, and the slice of the entries they hold."""
        rowptr = self.rowptr[nodes.start : nodes.stop + 1]
        entries = slice(int(rowptr[0]), int(rowptr[-1]))
        shape = (nodes.stop - nodes.start, self.shape[1])
        return Pattern(rowptr - entries.start, self.col[entries], shape), entries

    def select_rows(self, index: Tensor) -> tuple[Pattern, Tensor]:
        """Return the rows ``index``: [k], in any order, and the indices of the entries they hold."""
        starts = self.rowptr[:-1].index_select(0, index)
        rowptr = torch.cat([starts.new_zeros(1), self.rowptr.diff().index_select(0, index).cumsum(0)])
        rowptr = rowptr.to(self.rowptr.dtype)
        moved = (starts - rowptr[:-1]).repeat_interleave(rowptr.diff())
        entries = moved + torch.arange(moved.numel(), dtype=moved.dtype, device=moved.device)
        return Pattern(rowptr, self.col.index_select(0, entries), (index.numel(), self.shape[1])), entries

    def top(self, rows: int, columns: int) -> Pattern:
        """Return the first rows; all their entries must be in the first columns."""
        return Pattern(self.rowptr[: rows + 1], self.col[: int(self.rowptr[rows])], (rows, columns))

    def within(self, part: Tensor) -> tuple[Pattern, Tensor]:
        """Return a square pattern's entries whose row and column are in the same part, and the mask [nnz] of them.

        ``part``: [R] integers.
        """
        part = part.to(self.col.dtype)
        keep = part.index_select(0, self.col) == part.repeat_interleave(self.rowptr.diff(), output_size=self.nnz)
        before = torch.cat([self.rowptr.new_zeros(1), keep.cumsum(0, dtype=self.rowptr.dtype)])
        return Pattern(before.index_select(0, self.rowptr), self.col[keep], self.shape), keep

    def csr(self, value: Tensor) -> Tensor:
        """Return the torch CSR tensor with these entries and ``value``: [nnz], without a copy."""
        return torch.sparse_csr_tensor(self.rowptr, self.col, value, self.shape, check_invariants=False)

    def to(self, device: torch.device) -> Pattern:
        """Return the pattern on another device."""
        if device == self.col.device:
            return self
        moved = Pattern(to_device(self.rowptr, device), to_device(self.col, device), self.shape)
        if self.col.device.type == "cpu":
            moved.loops = int(torch.count_nonzero(self.row == self.col))
        return moved


def index_dtype(*sizes: int) -> torch.dtype:
    """Return the dtype of a pattern's indices, given its shape and number of entries."""
    return torch.int32 if max(sizes) < 2**31 else torch.int64


def row_chunks(rowptr: Tensor, rows: int, entries: int | None) -> Iterator[slice]:
    """Yield consecutive rows: at most ``rows`` >= 1 rows with at most ``entries`` entries, or a single row.

    ``rowptr``: [R + 1], the start of every row's entries. ``entries`` None: any number.
    """
    count, start = len(rowptr) - 1, 0
    ends = rowptr.cpu().numpy()
    while start < count:
        stop = min(start + rows, count)
        if entries is not None:
            fits = int(ends.searchsorted(int(ends[start]) + entries, side="right")) - 1
            stop = max(min(fits, stop), start + 1)
        yield slice(start, stop)
        start = stop


def _check_indices(index: Tensor, size: int, axis: str) -> None:
    if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
        kind = f"{index.dtype} of shape {list(index.shape)}"
        raise InputError(f"{axis} indices are {kind}: give an int64 or int32 vector [nnz]")
    if index.numel():
        low, high = map(int, index.aminmax())
        if low < 0 or high >= size:
            wrong = low if low < 0 else high
            raise InputError(f"{axis} index {wrong} is outside 0..{size - 1}: correct it, or the size {size}")
