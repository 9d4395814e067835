"""All nodes' features, one array per block of columns: in memory, or in a temporary file."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.io.tensors import row_pieces

_PIECE = 2**26  # bytes that are copied from the host to a GPU at once


def column_blocks(width: int, most: int) -> list[slice]:
    """Cut ``width`` columns into the fewest blocks of at most ``most`` columns, of about equal size."""
    count = -(-width // most)
    cuts = [width * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


class Stored(ABC):
    """Features on the host, one array [N, f] per block of columns; uninitialised at first.

    ``like`` is a tensor with the features' dtype, on the model's device.
    """

    def __init__(self, nodes: int, blocks: list[slice], like: Tensor) -> None:
        self.nodes, self.blocks = nodes, blocks
        self.width = blocks[-1].stop
        self.dtype, self.device = like.dtype, like.device

    @abstractmethod
    def read(self, index: int, nodes: slice) -> Tensor:
        """Return some nodes' rows of a block, on the host: [n, f]."""

    @abstractmethod
    def write(self, index: int, nodes: slice, values: Tensor) -> None:
        """Set some nodes' rows of a block: [n, f]."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory or the file. Calling it again is allowed."""

    def rows(self, nodes: slice) -> Tensor:
        """Return the features of some nodes on the model's device: [n, d]."""
        if len(self.blocks) == 1:
            return self.read(0, nodes).to(self.device)
        rows = torch.empty(nodes.stop - nodes.start, self.width, dtype=self.dtype, device=self.device)
        for index, columns in enumerate(self.blocks):
            rows[:, columns] = self.read(index, nodes).to(self.device)
        return rows

    def put(self, nodes: slice, values: Tensor) -> None:
        """Set the features of some nodes: [n, d]."""
        for index, columns in enumerate(self.blocks):
            self.write(index, nodes, values[:, columns])

    def block(self, index: int) -> Tensor:
        """Return a block on the model's device: [N, f]."""
        if self.device.type == "cpu":
            return self.read(index, slice(0, self.nodes))
        width = self.blocks[index].stop - self.blocks[index].start
        block = torch.empty(self.nodes, width, dtype=self.dtype, device=self.device)
        for piece in row_pieces(self.nodes, width * self.dtype.itemsize, _PIECE):
            block[piece] = self.read(index, piece).to(self.device)
        return block


class InMemory(Stored):
    """Features in the host's memory."""

    def __init__(self, nodes: int, blocks: list[slice], like: Tensor) -> None:
        super().__init__(nodes, blocks, like)
        self._blocks = [torch.empty(nodes, block.stop - block.start, dtype=like.dtype) for block in blocks]

    def read(self, index: int, nodes: slice) -> Tensor:
        """Return a view of the rows."""
        return self._blocks[index][nodes]

    def write(self, index: int, nodes: slice, values: Tensor) -> None:
        """Copy the rows."""
        self._blocks[index][nodes] = values.to("cpu")

    def close(self) -> None:
        """Free the memory."""
        self._blocks = []


class InFile(Stored):
    """Features in a temporary file without a name, in ``tempfile.gettempdir()``. It disappears with the process.

    The file is read and written, not mapped: mapped pages would count as the process's memory, and a full disk would
    end the process with a signal instead of an error.

    Raises:
        InputError: the file cannot be created, read or written.
    """

    def __init__(self, nodes: int, blocks: list[slice], like: Tensor) -> None:
        super().__init__(nodes, blocks, like)
        try:
            self._file = tempfile.TemporaryFile(prefix="gistgnn-", buffering=0)  # noqa: SIM115 (closed by `close`)
        except OSError as error:
            raise _unusable(error) from error

    def read(self, index: int, nodes: slice) -> Tensor:
        """Read the rows."""
        columns = self.blocks[index]
        rows = torch.empty(nodes.stop - nodes.start, columns.stop - columns.start, dtype=self.dtype)
        self._transfer("readinto", index, nodes, rows)
        return rows

    def write(self, index: int, nodes: slice, values: Tensor) -> None:
        """Write the rows."""
        self._transfer("write", index, nodes, values.to("cpu").contiguous())

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def _transfer(self, method: str, index: int, nodes: slice, rows: Tensor) -> None:
        place = self.nodes * self.blocks[index].start + nodes.start * rows.shape[1]
        left = memoryview(rows.view(-1).view(torch.uint8).numpy().data)
        try:
            self._file.seek(place * self.dtype.itemsize)
            while left:  # one call moves at most 2 GiB
                if not (moved := getattr(self._file, method)(left)):
                    raise OSError("the file is cut short")
                left = left[moved:]
        except OSError as error:
            raise _unusable(error) from error


def _unusable(error: OSError) -> InputError:
    return InputError(
        f"the temporary file for hidden features in {tempfile.gettempdir()} cannot be used "
        f"({error.strerror or reason(error)}): point TMPDIR to a disk with more room, or allow more memory"
    )
