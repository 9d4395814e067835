"""Arrays in a `.npz`, read block by block: the file may be larger than memory."""

from __future__ import annotations

import zipfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.archive import check_room
from gistgnn.graphs.npz import read_header

Array = npt.NDArray[Any]

_SKIPPED = 2**22  # bytes that are read at once to come to the end


@dataclass(frozen=True)
class ZipArray:
    """An array in a `.npz`.

    Attributes:
        path: the archive.
        name: of the array.
        shape: of the array.
        dtype: of its numbers.
        fortran: its columns are stored one after the other.
        begin: where the values begin in the member, in bytes.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    begin: int

    @classmethod
    def find(cls, archive: zipfile.ZipFile, path: Path, name: str) -> ZipArray:
        """Read the header of an array.

        Raises:
            InputError: it is not made of numbers, or its size is not what its header says.
        """
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as file:
            shape, fortran, dtype = read_header(file, info.file_size, name)
            return cls(path, name, shape, dtype, fortran and len(shape) > 1, file.tell())

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def whole(self) -> Array:
        """Read all values.

        Raises:
            InputError: they do not fit in memory.
        """
        check_room(self.nbytes, self.name)
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{self.name}.npy") as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
            file.read()  # at its end the checksum is compared
            return array

    def rows(self, most: int) -> Iterator[Array]:
        """Yield blocks of at most ``most`` rows.

        Raises:
            InputError: the columns are stored one after the other, and the array does not fit in memory.
        """
        if self.fortran:
            array = self.whole()
            yield from (array[start : start + most] for start in range(0, len(array), most))
            return
        with zipfile.ZipFile(self.path) as archive:
            yield from self._run(archive, 0, self.shape[0], self.shape[1:], most)

    def columns(self, most: int) -> Iterator[Array]:
        """Yield the columns of an array [2, E] in order: blocks [2, n] of at most ``most`` columns."""
        with zipfile.ZipFile(self.path) as archive, ExitStack() as stack:
            if self.fortran:
                yield from (block.T for block in self._run(archive, 0, self.shape[1], (self.shape[0],), most))
                return
            runs = [self._run(archive, row, self.shape[1], (), most) for row in range(self.shape[0])]
            for run in runs:
                stack.callback(run.close)
            for both in zip(*runs, strict=True):
                yield np.stack(both)

    def _run(
        self, archive: zipfile.ZipFile, number: int, rows: int, columns: tuple[int, ...], most: int
    ) -> Generator[Array, None, None]:
        """Yield ``rows`` rows of a run, after ``number`` runs of the same size."""
        size = int(np.prod(columns, dtype=object)) * self.dtype.itemsize
        with archive.open(f"{self.name}.npy") as file:
            file.read(self.begin)
            if number:
                file.seek(self.begin + number * rows * size)
            for start in range(0, rows, most):
                count = min(most, rows - start)
                data = file.read(count * size)
                if len(data) < count * size:
                    raise InputError(f"{self.name} is cut short")
                yield np.frombuffer(data, self.dtype).reshape(count, *columns)
            while not number and file.read(_SKIPPED):  # at the end of the member its checksum is compared
                pass
