"""`CSR`: the places of a sparse matrix's entries, without values.

The edges of a graph are such entries, by target.
"""

import warnings
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.utils.tensors import digest_of, tensor_digest, to_device

# torch warns when a process makes its first CSR tensor; before 2.13 of checks too, even where they
# are declined. Make it here, under a filter: changing the filters around a later product would
# affect other threads.
warnings.filterwarnings(
    "ignore", message="Sparse (CSR tensor support|invariant checks)", category=UserWarning
)
torch.sparse_csr_tensor([0], [], [], (0, 0), device="cpu", check_invariants=False)

_PIECE = 2**22  # entries that are read at once


class CSR:
    """The entries of a sparse matrix [R, C], sorted by row.

    Row i has the columns ``col[rowptr[i] : rowptr[i + 1]]``. The edges of a graph are the entries
    (target, source). Both tensors may be mapped from files. An entry may occur several times.

    Args:
        rowptr: [R + 1] integers, from 0 to nnz.
        col: [nnz] int32 or int64.
        shape: (R, C). Defaults to a square matrix.
        loops: the number of entries (i, i), if it is known without asking a GPU.

    Attributes:
        num_nodes: R, the nodes of a graph.
        num_edges: the number of entries, E.
        loops: see the argument.
    """

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        shape: tuple[int, int] | None = None,
        loops: int | None = None,
    ) -> None:
        self.rowptr = rowptr
        self.col = col
        self.loops = loops
        self.shape = shape or (rowptr.numel() - 1, rowptr.numel() - 1)
        self.num_nodes = self.shape[0]
        self.num_edges = col.numel()

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> "CSR":
        """Return the edges of an ``edge_index``: [2, E] that is sorted by (target, source)."""
        source, target = edge_index
        rows = torch.arange(num_nodes + 1, device=target.device)
        return cls(torch.searchsorted(target.contiguous(), rows), source)

    @classmethod
    def from_entries(
        cls,
        row: Tensor,
        col: Tensor,
        shape: tuple[int, int],
        names: tuple[str, str] = ("row", "column"),
    ) -> "tuple[CSR, Tensor | None]":
        """Return the entries (row[k], col[k]), and the order that sorts them by row.

        The order is None if they are sorted. Entries of one row keep their order.

        Args:
            row, col: [nnz] int32 or int64.
            shape: of the matrix.
            names: what errors call the axes.
        """
        for index, size, name in zip((row, col), shape, names, strict=True):
            if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
                kind = f"{index.dtype} of shape {list(index.shape)}"
                raise InputError(f"{name} indices are {kind}: give an int64 or int32 vector [nnz]")
            if (wrong := _outside(index, size)) is not None:
                raise InputError(
                    f"{name} index {wrong} is outside 0..{size - 1}: correct it, or the size {size}"
                )
        if row.shape != col.shape:
            raise InputError(
                f"{row.numel()} row and {col.numel()} column indices: give one of each per entry"
            )
        dtype = index_dtype(*shape, row.numel())
        row = row.to(dtype)
        col = col.to(dtype)
        order = None
        if not bool((row[1:] >= row[:-1]).all()):
            row, order = torch.sort(row, stable=True)
            col = col.index_select(0, order)
        return cls.from_sorted(row, col, shape), order

    @classmethod
    def from_sorted(cls, row: Tensor, col: Tensor, shape: tuple[int, int]) -> "CSR":
        """Return entries that are valid and sorted by row."""
        dtype = index_dtype(*shape, row.numel())
        rows = torch.arange(shape[0] + 1, dtype=row.dtype, device=row.device)
        rowptr = torch.searchsorted(row.contiguous(), rows, out_int32=dtype == torch.int32)
        return cls(rowptr, col.to(dtype), shape)

    @property
    def nbytes(self) -> int:
        return self.rowptr.nbytes + self.col.nbytes

    def targets(self) -> Tensor:
        """Return the row of every entry: [nnz], of the type of `col`."""
        return self.repeated(
            torch.arange(self.shape[0], dtype=self.col.dtype, device=self.col.device)
        )

    def repeated(self, values: Tensor) -> Tensor:
        """Return the value of every entry's row: [nnz], for ``values``: [R]."""
        return values.repeat_interleave(self.rowptr.diff(), output_size=self.num_edges)

    @cached_property
    def row(self) -> Tensor:
        """What `targets` returns; it stays in memory."""
        return self.targets()

    def edge_index(self) -> Tensor:
        return torch.stack([self.col.long(), self.targets().long()])

    @cached_property
    def most_entries(self) -> int:
        """Entries of the fullest row."""
        starts = range(0, self.shape[0], _PIECE)
        return max(
            (int(self.rowptr[start : start + _PIECE + 1].diff().max()) for start in starts),
            default=0,
        )

    def digest(self) -> str:
        """Return a digest of the entries, whatever their types."""
        col = self.col if self.shape[1] >= 2**31 else self.col.to(torch.int32)
        return digest_of([list(self.shape), tensor_digest(self.rowptr.long()), tensor_digest(col)])

    def to(self, device: torch.device | str) -> "CSR":
        device = torch.device(device)
        if device == self.col.device:
            return self
        loops = (
            int(torch.count_nonzero(self.row == self.col))
            if self.col.device.type == "cpu"
            else None
        )
        return CSR(to_device(self.rowptr, device), to_device(self.col, device), self.shape, loops)

    def with_values(self, value: Tensor) -> Tensor:
        """Return the torch CSR tensor with these entries and ``value``: [nnz], without a copy."""
        return torch.sparse_csr_tensor(
            self.rowptr, self.col, value, self.shape, check_invariants=False
        )

    def for_products(self) -> "CSR":
        """Return the entries with one type for both tensors, as torch's products want.

        It is int32 where the numbers fit.
        """
        dtype = index_dtype(*self.shape, self.num_edges)
        if self.rowptr.dtype == self.col.dtype == dtype:
            return self
        return CSR(self.rowptr.to(dtype), self.col.to(dtype), self.shape, self.loops)

    @cached_property
    def transpose(self) -> "tuple[CSR, Tensor]":
        """The transposed entries, and for each of them its index here: [nnz], int64."""
        try:
            rowptr = self.rowptr.numpy()
            col = self.col.numpy()
        except (RuntimeError, TypeError):
            # NumPy cannot read tensors on a GPU, or within a transform of torch.func.
            turned, order = torch.sort(self.col, stable=True)
            return CSR.from_sorted(turned, self.row.index_select(0, order), self.shape[::-1]), order
        from scipy.sparse import csr_array  # loading it takes 0.2 s

        # SciPy counts, which takes a quarter of the time of sorting.
        by_column = csr_array(
            (np.arange(self.num_edges, dtype=col.dtype), col, rowptr), shape=self.shape
        ).tocsc()
        dtype = index_dtype(*self.shape, self.num_edges)
        starts = torch.from_numpy(by_column.indptr).to(dtype)
        rows = torch.from_numpy(by_column.indices).to(dtype)
        return CSR(starts, rows, self.shape[::-1]), torch.from_numpy(by_column.data).long()

    def looped(self, loop_of: Tensor | None = None) -> "tuple[CSR, Tensor, Tensor]":
        """Put one self-loop at the end of every row, and drop the given ones: the entries of Ā.

        ``loop_of``: [R] is the column of each row's self-loop. By default row i has (i, i). Returns
        the entries, the index of the given entries that stay (a mask, or places), and their new
        places.
        """
        size = self.shape[0]
        nodes = torch.arange(size, dtype=self.col.dtype, device=self.col.device)
        keep = self._off_diagonal(None if loop_of is None else loop_of.to(self.col.dtype))
        row = self.row[keep]
        col = self.col[keep]
        # Without a second sort: an entry moves back by one place for every earlier row, which has
        # got a self-loop.
        new_places = torch.arange(row.numel(), device=col.device) + row
        bounds = torch.searchsorted(row, nodes, right=True) + nodes
        dtype = index_dtype(*self.shape, row.numel() + size)
        looped = col.new_empty(row.numel() + size, dtype=dtype)
        looped[new_places] = col.to(dtype)
        looped[bounds] = (nodes if loop_of is None else loop_of).to(dtype)
        rowptr = torch.cat([bounds.new_zeros(1), bounds + 1]).to(dtype)
        return CSR(rowptr, looped, self.shape), keep, new_places

    def _off_diagonal(self, loop_of: Tensor | None) -> Tensor:
        """Return an index of the entries that are no self-loops.

        It is a mask [nnz], or places if it is known how many there are.
        """
        loop_of_entry = self.row if loop_of is None else loop_of.index_select(0, self.row)
        is_off = loop_of_entry != self.col
        if self.loops is None:
            return is_off
        # A mask would make the host wait for the GPU, to count the entries. Self-loops share one
        # place, at the end.
        count = self.num_edges - self.loops
        new_places = torch.where(is_off, is_off.cumsum(0) - 1, count)
        entries = torch.arange(self.num_edges, device=new_places.device)
        return entries.new_empty(count + 1).scatter_(0, new_places, entries)[:count]

    def pieces(self, limit: int) -> "Iterator[tuple[CSR, slice]]":
        """Cut the entries into pieces of at most ``limit`` consecutive ones.

        Each comes with the slice that it holds.
        """
        limit = max(limit, 1)
        for start in range(0, self.num_edges, limit):
            stop = min(start + limit, self.num_edges)
            yield (
                CSR(self.rowptr.clamp(start, stop) - start, self.col[start:stop], self.shape),
                slice(start, stop),
            )

    def rows(self, nodes: slice | Tensor) -> "tuple[CSR, slice | Tensor]":
        """Return some rows, and an index of their entries.

        Consecutive rows are a view; otherwise ``nodes`` are [k] in any order.
        """
        if isinstance(nodes, slice):
            rowptr = self.rowptr[nodes.start : nodes.stop + 1]
            entries_of_rows = slice(int(rowptr[0]), int(rowptr[-1]))
            shape = (len(rowptr) - 1, self.shape[1])
            start = entries_of_rows.start
            return CSR(rowptr - start, self.col[entries_of_rows], shape), entries_of_rows
        starts = self.rowptr.index_select(0, nodes)
        rowptr = torch.cat(
            [starts.new_zeros(1), (self.rowptr.index_select(0, nodes + 1) - starts).cumsum(0)]
        )
        rowptr = rowptr.to(self.rowptr.dtype)
        moved = (starts - rowptr[:-1]).repeat_interleave(rowptr.diff())
        entries = moved + torch.arange(moved.numel(), dtype=moved.dtype, device=moved.device)
        return CSR(
            rowptr, self.col.index_select(0, entries), (nodes.numel(), self.shape[1])
        ), entries


def index_dtype(*sizes: int) -> torch.dtype:
    """Return the type of indices, given a matrix's shape and number of entries."""
    return torch.int32 if max(sizes) < 2**31 else torch.int64


def check_sources(col: Tensor, nodes: int) -> None:
    """Refuse sources of edges that are no nodes: the file of edges is damaged.

    A product would read memory that is not its own.
    """
    if (wrong := _outside(col, nodes)) is not None:
        hint = "the graph's folder is damaged; convert the graph again"
        raise InputError(f"an edge begins at node {wrong}, expected 0 to {nodes - 1}: {hint}")


def row_chunks(rowptr: Tensor, rows: int, entries: int | None) -> Iterator[slice]:
    """Yield consecutive rows: at most ``rows`` >= 1 rows with at most ``entries`` entries.

    A row with more entries comes alone.
    """
    count = len(rowptr) - 1
    start = 0
    ends = rowptr.cpu().numpy()
    while start < count:
        stop = min(start + rows, count)
        if entries is not None:
            fits = int(ends.searchsorted(int(ends[start]) + entries, side="right")) - 1
            stop = max(min(fits, stop), start + 1)
        yield slice(start, stop)
        start = stop


def _outside(index: Tensor, size: int) -> int | None:
    """Return a number that is not from 0 to ``size`` - 1, or None if all are."""
    if not index.numel():
        return None
    lowest, highest = map(int, index.aminmax())
    if lowest < 0:
        return lowest
    return highest if highest >= size else None
