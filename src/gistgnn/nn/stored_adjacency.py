"""The structure of a graph whose edges stay in a file: they are read for some rows at a time, as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.entries import Entries, Nodes, Ranges, Selection
from gistgnn.nn.pattern import Pattern, index_dtype, row_chunks
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.nn.weights import check_weights, loop_weights, looped, row_sums, with_self, without_zeros

ENTRIES = 2**20
"""Entries that are read at once where nobody asks for fewer."""

ROWS = 2**16
"""Rows that are read at once, at most: where nodes have few edges, the product of many rows would be large."""


class StoredPattern(Pattern):
    """A pattern whose columns stay in a file. `rows` reads those of some rows; everything else maps the file.

    Args:
        rowptr: [R + 1] int64.
        columns: the column of every entry, [nnz].
        shape: (R, C).
    """

    def __init__(self, rowptr: Tensor, columns: Entries, shape: tuple[int, int]) -> None:
        self.rowptr, self.shape, self._columns = rowptr, shape, columns

    @property
    def col(self) -> Tensor:  # type: ignore[override]
        """Column of every entry, mapped: [nnz]."""
        return self._columns.mapped()

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.rowptr[-1])

    def rows(self, nodes: slice) -> tuple[Pattern, slice]:
        """Return the rows from nodes.start to nodes.stop, read into memory, and the slice of the entries they hold."""
        pattern, _ = self.read(nodes)
        return pattern, slice(int(self.rowptr[nodes.start]), int(self.rowptr[nodes.stop]))

    def read(self, nodes: Nodes) -> tuple[Pattern, Selection]:
        """Return some rows, read into memory, and the entries that they hold."""
        if isinstance(nodes, slice):
            rowptr = self.rowptr[nodes.start : nodes.stop + 1]
            chosen = Selection([(int(rowptr[0]), int(rowptr[-1]))])
            rowptr = rowptr - rowptr[0]
        else:
            begin, end = self.rowptr[nodes], self.rowptr[nodes + 1]
            rowptr = torch.cat([begin.new_zeros(1), (end - begin).cumsum(0)])
            chosen = Selection.between(begin, end)
        dtype = index_dtype(*self.shape, int(rowptr[-1]))
        shape = (len(rowptr) - 1, self.shape[1])
        return Pattern(rowptr.to(dtype), chosen.of(self._columns).to(dtype), shape), chosen

    def columns(self, ranges: Ranges) -> Tensor:
        """Return the columns of some ranges of entries, one after another: [n]."""
        return self._columns.read(ranges)

    def chunks(self, entries: int = ENTRIES) -> Iterator[slice]:
        """Yield at most `ROWS` consecutive rows with at most ``entries`` entries, or one row."""
        return row_chunks(self.rowptr, ROWS, entries)

    def to(self, device: torch.device) -> Pattern:
        """Return this pattern, which stays where it is."""
        return self


class StoredAdjacency(Adjacency):
    """The structure of a graph in a file, on the host. Its operators have `SparseMatrix.rows` and products alone.

    Every entry is what an `Adjacency` of the same graph has: degrees are counted in one pass over the file, and the
    values of some rows are computed when the rows are read.

    Args:
        pattern: [N, N], the entries (target, source).
        dtype: of the features.
        weights: of the entries; None: 1.
    """

    pattern: StoredPattern

    def __init__(self, pattern: StoredPattern, dtype: torch.dtype, weights: Entries | None = None) -> None:
        self.pattern, self.dtype, self._weights = pattern, dtype, weights
        self.cache_products(None)

    @property
    def edge_weight(self) -> Tensor | None:  # type: ignore[override]
        """The weights, mapped: [E]; None: 1."""
        return None if self._weights is None else self._weights.mapped()

    @property
    def device(self) -> torch.device:
        """The device of the structure: the host."""
        return torch.device("cpu")

    @cached_property
    def gcn(self) -> SparseMatrix:
        """Ā of eq. 1, see `Adjacency.gcn`."""
        return cast(SparseMatrix, _Operator(self, self._gcn_rows))

    @cached_property
    def mean(self) -> SparseMatrix:
        """D^-1 A, see `Adjacency.mean`."""
        return cast(SparseMatrix, _Operator(self, self._mean_rows))

    @cached_property
    def sum(self) -> SparseMatrix:
        """A + I, see `Adjacency.sum`."""
        return cast(SparseMatrix, _Operator(self, self._sum_rows))

    @cached_property
    def attention(self) -> Pattern:
        """The edges, and every node with itself once, see `Adjacency.attention`."""
        return _WithSelfLoops(self)

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        """Return this structure, which stays on the host; only the dtype may change."""
        dtype = torch.empty(0, dtype=self.dtype).to(*args, **kwargs).dtype
        return self if dtype == self.dtype else StoredAdjacency(self.pattern, dtype, self._weights)

    @cached_property
    def _scale(self) -> Tensor:
        """D̃^-1/2: [N]."""
        scale = torch.empty(self.num_nodes, dtype=self.dtype)
        for nodes in self.pattern.chunks():
            pattern, weight, _ = self._shifted(nodes)
            if weight is None:
                scale[nodes] = pattern.with_self_loops().rowptr.diff().to(self.dtype).rsqrt()
            else:
                check_weights(weight)
                sums = row_sums(*looped(pattern, weight, loop_weights(pattern, weight)))
                scale[nodes] = without_zeros(sums).rsqrt()
        return scale

    def _gcn_rows(self, nodes: Nodes) -> SparseMatrix:
        pattern, weight, back = self._shifted(nodes)
        if weight is None:
            pattern = pattern.with_self_loops()
            row, col = pattern.row, back(pattern).col
            value = self._scale[nodes].index_select(0, row) * self._scale.index_select(0, col)
        else:
            pattern, value = looped(pattern, weight, loop_weights(pattern, weight))
            row, col = pattern.row, back(pattern).col
            value.mul_(self._scale[nodes].index_select(0, row)).mul_(self._scale.index_select(0, col))
        return SparseMatrix.from_pattern(back(pattern), value)

    def _mean_rows(self, nodes: Nodes) -> SparseMatrix:
        pattern, chosen = self.pattern.read(nodes)
        weight = self._weight(chosen)
        if weight is None:
            scale = pattern.rowptr.diff().to(self.dtype).reciprocal()
            return SparseMatrix.from_pattern(pattern, scale.index_select(0, pattern.row))
        check_weights(weight)
        scale = without_zeros(row_sums(pattern, weight)).reciprocal()
        return SparseMatrix.from_pattern(pattern, weight * scale.index_select(0, pattern.row))

    def _sum_rows(self, nodes: Nodes) -> SparseMatrix:
        pattern, weight, back = self._shifted(nodes)
        matrix = with_self(pattern, weight, self.dtype)
        return SparseMatrix.from_pattern(back(matrix.pattern), matrix.value)

    def _weight(self, chosen: Selection) -> Tensor | None:
        return None if self._weights is None else chosen.of(self._weights).to(self.dtype)

    def _shifted(self, nodes: Nodes) -> tuple[Pattern, Tensor | None, Callable[[Pattern], Pattern]]:
        """Return some rows with their columns shifted, so that self-loops are the entries (i, i); and the way back."""
        pattern, chosen = self.pattern.read(nodes)
        size = self.shape[1]

        def by(each: Pattern) -> Tensor | int:
            if isinstance(nodes, slice):
                return int(nodes.start)
            return (nodes - torch.arange(len(nodes))).to(pattern.col.dtype).repeat_interleave(each.rowptr.diff())

        def back(shifted: Pattern) -> Pattern:
            moved = shifted.col + (by(shifted) - size)  # never beyond what its type holds
            moved += (moved < 0) * size
            return Pattern(shifted.rowptr, moved, shifted.shape)

        col = pattern.col - by(pattern)
        col += (col < 0) * size
        return Pattern(pattern.rowptr, col, pattern.shape), self._weight(chosen), back

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N)."""
        return self.pattern.shape


class _WithSelfLoops(Pattern):
    """`Adjacency.attention` of a graph in a file: rows, and where they begin."""

    def __init__(self, adj: StoredAdjacency) -> None:
        self._adj, self.shape = adj, adj.pattern.shape

    @cached_property
    def rowptr(self) -> Tensor:  # type: ignore[override]
        """[N + 1]: a pass over the file counts the self-loops that are given."""
        rowptr = torch.zeros(self.shape[0] + 1, dtype=torch.int64)
        for nodes in self._adj.pattern.chunks():
            pattern, *_ = self._adj._shifted(nodes)
            rowptr[nodes.start + 1 : nodes.stop + 1] = pattern.with_self_loops().rowptr.diff()
        return rowptr.cumsum_(0)

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.rowptr[-1])

    def rows(self, nodes: slice) -> tuple[Pattern, slice]:
        """Return some rows, read into memory, and the slice of their entries."""
        pattern, _, back = self._adj._shifted(nodes)
        entries = slice(int(self.rowptr[nodes.start]), int(self.rowptr[nodes.stop]))
        return back(pattern.with_self_loops()), entries


class _Operator:
    """An operator of a `StoredAdjacency`, in place of a `SparseMatrix`."""

    def __init__(self, adj: StoredAdjacency, rows: Callable[[Nodes], SparseMatrix]) -> None:
        self._adj, self.rows, self.shape = adj, rows, adj.shape

    def __matmul__(self, h: Tensor) -> Tensor:
        """Return Ā h in memory, for dense ``h``: [N, d]."""
        out = h.new_empty(self.shape[0], h.shape[1])
        for nodes in self._adj.pattern.chunks():
            out[nodes] = self.rows(nodes) @ h
        return out
