"""Edges in blocks of consecutive targets, from the first to the last: in memory, or read from a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.on_disk.manifest import ADVICE, Manifest
from gistgnn.graphs.on_disk.reading import ArrayFile

Ints = npt.NDArray[Any]

_POINTERS = 2**16  # nodes whose places in `col` are read at once


@dataclass(frozen=True)
class Rows:
    """The edges into consecutive nodes.

    Attributes:
        first: the number of the first node.
        rowptr: [n + 1] int64, from 0: node ``first + i`` has the edges ``rowptr[i]`` to ``rowptr[i + 1] - 1``.
        source: [edges of these nodes] integers.
        begin: the number of the first of these edges in the graph.
    """

    first: int
    rowptr: npt.NDArray[np.int64]
    source: Ints
    begin: int

    def __len__(self) -> int:
        return len(self.rowptr) - 1

    @property
    def nodes(self) -> slice:
        """The numbers of the nodes."""
        return slice(self.first, self.first + len(self))

    @property
    def edges(self) -> slice:
        """The numbers of the edges."""
        return slice(self.begin, self.begin + len(self.source))

    def targets(self) -> npt.NDArray[np.int64]:
        """Return the target of every edge, counted from ``first``: [edges]."""
        return np.arange(len(self)).repeat(np.diff(self.rowptr))


class RowReader(ABC):
    """The edges of a graph, in blocks.

    Attributes:
        nodes: N.
        edges: E, directed.
    """

    nodes: int
    edges: int

    def rows(self, most_edges: int, most_nodes: int, longest: int | None = None) -> Iterator[Rows]:
        """Yield all edges in blocks of at most so many edges and nodes. A node with more edges has its own block.

        Args:
            most_edges: of a block.
            most_nodes: of a block.
            longest: leave out the edges of a node beyond so many, if it has more than ``most_edges``.

        Raises:
            InputError: they cannot be read, or are damaged.
        """
        for first, ptr in self.pointers():
            begin, last = 0, len(ptr) - 1
            while begin < last:
                fits = int(np.searchsorted(ptr, ptr[begin] + most_edges, "right")) - 1
                end = min(max(fits, begin + 1), begin + most_nodes, last)
                rowptr = ptr[begin : end + 1] - ptr[begin]
                if longest and end == begin + 1:
                    rowptr = np.minimum(rowptr, max(longest, most_edges))
                start = int(ptr[begin])
                yield Rows(first + begin, rowptr, self._sources(start, start + int(rowptr[-1])), start)
                begin = end

    def whole(self) -> CSR:
        """Return all edges, in memory.

        Raises:
            InputError: as `rows`.
        """
        rowptr, col = self._rowptr(0, self.nodes + 1), self._sources(0, self.edges)
        self._check(rowptr)
        return CSR(torch.from_numpy(rowptr), torch.from_numpy(col))

    def pointers(self) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield the first of some nodes, and where the edges of each begin and those of the last one end.

        Raises:
            InputError: as `rows`.
        """
        for first in range(0, self.nodes, _POINTERS):
            ptr = self._rowptr(first, min(first + _POINTERS, self.nodes) + 1)
            self._check(ptr)
            yield first, ptr

    def _check(self, ptr: npt.NDArray[np.int64]) -> None:
        if ptr[0] < 0 or ptr[-1] > self.edges or (np.diff(ptr) < 0).any():
            raise InputError(f"rowptr does not rise from 0 to {self.edges}; {ADVICE}")

    def _sources(self, start: int, stop: int) -> Ints:
        source = self._col(start, stop)
        if len(source) and (source.min() < 0 or source.max() >= self.nodes):
            raise InputError(f"col holds a node outside of 0 to {self.nodes - 1}; {ADVICE}")
        return source

    @abstractmethod
    def _rowptr(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return a part of ``rowptr``."""

    @abstractmethod
    def _col(self, start: int, stop: int) -> Ints:
        """Return a part of ``col``."""


class RowsInMemory(RowReader):
    """The edges of a graph in memory.

    Args:
        edges: by target.
    """

    def __init__(self, edges: CSR) -> None:
        self._held = edges.rowptr.cpu().numpy(), edges.col.cpu().numpy()
        self.nodes, self.edges = edges.num_nodes, edges.num_edges

    def _rowptr(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        return self._held[0][start:stop].astype(np.int64)

    def _col(self, start: int, stop: int) -> Ints:
        return self._held[1][start:stop]


class RowsOnDisk(RowReader):
    """The edges in a graph folder. They are read, not mapped: their pages do not count as this process's memory.

    Args:
        folder: of the graph.
        manifest: of the folder.

    Raises:
        InputError: a file is missing, or is not what the manifest says.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.nodes, self.edges = manifest.nodes, manifest.edges
        self._files = {name: ArrayFile.of(folder, manifest, name) for name in ("rowptr", "col")}

    def _rowptr(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        return self._files["rowptr"].rows([(start, stop)])

    def _col(self, start: int, stop: int) -> Ints:
        return self._files["col"].rows([(start, stop)])
