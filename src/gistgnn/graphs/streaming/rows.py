"""The edges of a graph in blocks of consecutive targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR

_POINTERS = 2**16  # nodes whose places in `col` are looked at at once


@dataclass(frozen=True)
class Rows:
    """The edges into consecutive nodes.

    Attributes:
        first: the number of the first node.
        rowptr: [n + 1] int64, from 0: node ``first + i`` has the edges ``rowptr[i]`` to ``rowptr[i + 1] - 1``.
        source: [edges of these nodes] integers.
    """

    first: int
    rowptr: npt.NDArray[np.int64]
    source: npt.NDArray[Any]

    @property
    def nodes(self) -> slice:
        """The numbers of the nodes."""
        return slice(self.first, self.first + len(self.rowptr) - 1)

    def targets(self) -> npt.NDArray[np.int64]:
        """Return the target of every edge, counted from ``first``: [edges]."""
        return np.arange(len(self.rowptr) - 1).repeat(np.diff(self.rowptr))


def row_blocks(edges: CSR, most_edges: int, most_nodes: int, longest: int) -> Iterator[Rows]:
    """Yield all edges in blocks of at most so many edges and nodes. A node with more edges has its own block.

    Args:
        edges: by target, in memory or mapped.
        most_edges: of a block.
        most_nodes: of a block.
        longest: the edges of a node with more than ``most_edges`` are left out beyond so many.

    Raises:
        InputError: a source is no node: the file is damaged.
    """
    rowptr, col, nodes = edges.rowptr.numpy(), edges.col.numpy(), edges.num_nodes
    for first in range(0, nodes, _POINTERS):
        ptr = rowptr[first : min(first + _POINTERS, nodes) + 1].astype(np.int64)
        begin, last = 0, len(ptr) - 1
        while begin < last:
            fits = int(np.searchsorted(ptr, ptr[begin] + most_edges, "right")) - 1
            end = min(max(fits, begin + 1), begin + most_nodes, last)
            bounds = ptr[begin : end + 1] - ptr[begin]
            if end == begin + 1:
                bounds = np.minimum(bounds, max(longest, most_edges))
            source = col[ptr[begin] : ptr[begin] + bounds[-1]]
            if len(source) and (source.min() < 0 or source.max() >= nodes):
                raise InputError(f"an edge begins at a node outside of 0 to {nodes - 1}; convert the graph again")
            yield Rows(first + begin, bounds, source)
            begin = end
