"""Reading parts of the arrays of a graph folder. They are read, not mapped: see `gistgnn.storage.tensors`."""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.on_disk.manifest import ADVICE, Manifest, StoredArray
from gistgnn.graphs.on_disk.npy import Array, as_tensor, map_array, values_begin

_ADVISED = 64  # ranges; asking for more takes longer than reading them
_MANY = 2**16  # rows

Ranges = Sequence[tuple[int, int]]
"""Some rows: the first one of each range, and the one after the last."""


class ArrayFile:
    """An open `.npy` file; several threads may read it.

    Args:
        path: the file.
        array: what the manifest says of it.

    Raises:
        InputError: it is missing, cut short, or another array.
    """

    def __init__(self, path: Path, array: StoredArray) -> None:
        self.path, self.shape, self._array = path, array.shape, array
        self._begin = values_begin(path, array)
        self.dtype, self._columns = np.dtype(array.dtype), array.shape[1:]
        self._row_bytes = math.prod(self._columns) * self.dtype.itemsize
        try:
            self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise self._unreadable(error) from error
        weakref.finalize(self, os.close, self._handle)

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, name: str) -> ArrayFile:
        """Open an array of a graph folder."""
        return cls(folder / f"{name}.npy", manifest.arrays[name])

    def rows(self, ranges: Ranges) -> Array:
        """Return the rows of some ranges, one after another: [n, ...].

        The system is asked for all ranges first, so that the disk works on several at once.

        Raises:
            InputError: the file is cut short, or cannot be read.
        """
        if not hasattr(os, "preadv"):  # Windows
            return np.concatenate([self.array[start:stop] for start, stop in ranges])
        out = np.empty((sum(stop - start for start, stop in ranges), *self._columns), self.dtype)
        left = out.reshape(-1).view(np.uint8).data
        if 1 < len(ranges) <= _ADVISED and hasattr(os, "posix_fadvise"):
            for start, stop in ranges:
                size = (stop - start) * self._row_bytes
                os.posix_fadvise(self._handle, self._place(start), size, os.POSIX_FADV_WILLNEED)
        for start, stop in ranges:
            size = (stop - start) * self._row_bytes
            self._fill(left[:size], self._place(start))
            left = left[size:]
        return out

    def read(self, ranges: Ranges) -> Tensor:
        """Return the rows of some ranges as a tensor."""
        return torch.from_numpy(self.rows(ranges))

    def gathered(self, places: Array) -> Array:
        """Return the rows of some numbers, or of a mask, from the mapped file.

        The pages of many rows are given back afterwards: they would count as memory of this process.
        """
        found: Array = self.array[places]
        mapped = getattr(self.array, "_mmap", None)
        if mapped is not None and len(found) >= _MANY and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)  # nothing is written to it, so nothing is lost
        return found

    @cached_property
    def array(self) -> Array:
        """The whole array, mapped."""
        return map_array(self.path, self._array)

    def mapped(self) -> Tensor:
        """Return the whole array as a tensor, mapped."""
        return as_tensor(self.array)

    def _place(self, row: int) -> int:
        return self._begin + row * self._row_bytes

    def _fill(self, data: memoryview, offset: int) -> None:
        try:
            while len(data):  # the system moves at most 2 GiB at once
                if not (count := os.preadv(self._handle, [data], offset)):
                    raise OSError("it is cut short")
                data, offset = data[count:], offset + count
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(f"{self.path} cannot be read ({error.strerror or error}); {ADVICE}")


class NodeNumbers(ArrayFile):
    """An open file of numbers of nodes. Those that are read are compared with N: a product reads wherever they say.

    Args:
        path: the file.
        array: what the manifest says of it.
        nodes: N.
    """

    def __init__(self, path: Path, array: StoredArray, nodes: int) -> None:
        super().__init__(path, array)
        self._nodes = nodes

    def rows(self, ranges: Ranges) -> Array:
        """Return the numbers of some ranges, see `ArrayFile.rows`.

        Raises:
            InputError: also if one is not from 0 to N - 1.
        """
        found = super().rows(ranges)
        unsigned = found.view(f"u{found.itemsize}")  # in which a number below 0 is a large one
        if len(found) and unsigned.max() >= self._nodes:
            raise InputError(f"{self.path} is damaged: it holds a node outside of 0 to {self._nodes - 1}; {ADVICE}")
        return found
