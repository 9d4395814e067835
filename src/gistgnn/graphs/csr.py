"""`CSR`: the edges of a graph by target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor

from gistgnn.utils.tensor_bytes import bytes_of

_PIECE = 2**22  # edges


@dataclass(frozen=True, eq=False)
class CSR:
    """The edges of a graph by target: the sources of the edges into node i are ``col[rowptr[i] : rowptr[i + 1]]``.

    Attributes:
        rowptr: [N + 1] integers, from 0 to E.
        col: [E] int32 or int64, the sources, ascending for each target.
    """

    rowptr: Tensor
    col: Tensor

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> CSR:
        """Return the edges of an ``edge_index``: [2, E] that is sorted by (target, source)."""
        source, target = edge_index
        rows = torch.arange(num_nodes + 1, device=target.device)
        return cls(torch.searchsorted(target.contiguous(), rows), source)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.rowptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return self.col.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.rowptr.nbytes + self.col.nbytes

    def targets(self) -> Tensor:
        """Return the target of every edge: [E], of the type of `col`."""
        nodes = torch.arange(self.num_nodes, dtype=self.col.dtype, device=self.col.device)
        return nodes.repeat_interleave(self.rowptr.diff(), output_size=self.num_edges)

    def edge_index(self) -> Tensor:
        """Return [2, E] int64, the sources above the targets, sorted by (target, source)."""
        return torch.stack([self.col.long(), self.targets().long()])

    def checksum(self, start: int = 0) -> int:
        """Return the checksum of `edge_index`, as `gistgnn.utils.checksums.checksum` does, without making it."""
        hashed = xxhash.xxh32(seed=start)
        for begin in range(0, self.num_edges, _PIECE):
            hashed.update(bytes_of(self.col[begin : begin + _PIECE].long()))
        for piece in self._targets_in_pieces():
            hashed.update(piece.data)
        return hashed.intdigest()

    def _targets_in_pieces(self) -> Iterator[npt.NDArray[np.int64]]:
        rowptr = self.rowptr.cpu().numpy()
        for begin in range(0, self.num_edges, _PIECE):
            end = min(begin + _PIECE, self.num_edges)
            first, last = np.searchsorted(rowptr, [begin, end - 1], side="right") - 1
            degrees = np.diff(np.clip(rowptr[first : last + 2], begin, end))
            yield np.arange(first, last + 1).repeat(degrees)

    def to(self, device: torch.device | str) -> CSR:
        """Return the edges on another device."""
        return CSR(self.rowptr.to(device), self.col.to(device))
