"""The features of all nodes between two layers: in memory, or mapped from a temporary file."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import cast

import torch
from torch import Tensor

from gistgnn.nn import SparseMatrix
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.utils.transfer import copied


class NodeFeatures:
    """The features of all nodes, in one matrix [N, f] per block of columns; a single one may be sparse.

    They are read on ``device`` and as ``dtype``.
    """

    def __init__(self, parts: list[Tensor] | list[SparseMatrix], device: torch.device, dtype: torch.dtype) -> None:
        self._parts, self._device, self._dtype = parts, device, dtype
        cuts = accumulate((part.shape[1] for part in parts), initial=0)
        self.blocks = [slice(start, stop) for start, stop in pairwise(cuts)]

    @classmethod
    def empty(
        cls, nodes: int, blocks: list[slice], device: torch.device, dtype: torch.dtype, *, in_file: bool
    ) -> NodeFeatures:
        """Return features on the host that are still to be set; `blocks` cut their columns."""
        size = torch.Size([nodes * blocks[-1].stop])
        in_file = in_file and bool(size.numel())
        whole = temporary_tensors({"x": (size, dtype)})["x"] if in_file else torch.empty(size, dtype=dtype)
        cuts = ((nodes * block.start, nodes * block.stop) for block in blocks)
        return cls([whole[start:stop].view(nodes, -1) for start, stop in cuts], device, dtype)

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.blocks[-1].stop

    def rows(self, nodes: slice | Tensor) -> Tensor | SparseMatrix:
        """Return the features of some nodes: [n, d]."""
        first = self._parts[0]
        if isinstance(first, SparseMatrix):
            return first.rows(nodes)
        where = nodes.to(first.device) if isinstance(nodes, Tensor) else nodes
        rows = [part[where] for part in self._parts if isinstance(part, Tensor)]
        return (rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)).to(self._device, self._dtype)

    def block(self, index: int) -> Tensor:
        """Return a block of columns of all nodes: [N, f]; not copied where it is as it is wanted."""
        part = cast(Tensor, self._parts[index])
        if (part.device, part.dtype) == (self._device, self._dtype) and part.is_contiguous():
            return part
        return copied(part, self._device, self._dtype)

    def put(self, nodes: slice, values: Tensor) -> None:
        """Set the features of some nodes: [n, d]."""
        for index, columns in enumerate(self.blocks):
            self.put_block(index, nodes, values[:, columns])

    def put_block(self, index: int, nodes: slice, values: Tensor) -> None:
        """Set a block of columns of some nodes: [n, f]."""
        cast(Tensor, self._parts[index])[nodes] = values

    def close(self) -> None:
        """Let go of the features."""
        self._parts = []
