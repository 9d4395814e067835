"""Arrays in `.npy` files: written from the first row to the last, and mapped to be read."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.graphs.on_disk.manifest import ADVICE, BLOCK, StoredArray

Array = npt.NDArray[Any]

HEADER = 128
"""Bytes before the values in a file that `ArrayWriter` writes: a multiple of 64, as NumPy wants."""


class ArrayWriter:
    """Writes the rows of an array to a `.npy` file, and computes their checksums.

    Args:
        path: the file; one that is there is replaced, or gone on with, see ``rows``.
        dtype: of the numbers.
        columns: the shape of a row.
        rows: that the file holds already; rows after these are dropped. They are read once, for their checksums.

    Raises:
        InputError: the file does not hold so many.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, columns: tuple[int, ...] = (), rows: int = 0) -> None:
        self.path, self.dtype, self.columns, self.rows = path, np.dtype(dtype), columns, rows
        self._checksums: list[str] = []
        self._hashed, self._filled = xxhash.xxh3_64(), 0
        self._file = path.open("r+b" if rows else "wb", buffering=0)
        try:
            if rows:
                if os.fstat(self._file.fileno()).st_size < HEADER + rows * self._row_bytes:
                    raise InputError(f"{path} is damaged: it is cut short; run the same command again")
                self._file.truncate(HEADER + rows * self._row_bytes)
                self._file.seek(HEADER)
                for piece in read_pieces(self._file, rows * self._row_bytes):
                    self._hash(piece)
            self._file.seek(HEADER + rows * self._row_bytes)
        except BaseException:
            self._file.close()
            raise

    def append(self, values: Array) -> None:
        """Write more rows.

        Raises:
            OSError: they cannot be written.
        """
        data = np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data
        written = 0
        while written < len(data):  # a raw write may write less
            written += self._file.write(data[written:]) or 0
        self._hash(data)
        self.rows += len(values)

    def sync(self) -> None:
        """Wait until what is written is on the disk."""
        os.fsync(self._file.fileno())

    def finish(self) -> StoredArray:
        """Write the header, close the file, and return what the manifest says of it."""
        if self._filled:
            self._end_block()
        shape = (self.rows, *self.columns)
        self._file.seek(0)
        self._file.write(_header(self.dtype, shape))
        self.sync()
        self.close()
        return StoredArray(self.dtype.name, shape, tuple(self._checksums))

    def close(self) -> None:
        """Close the file; what is written stays."""
        self._file.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.columns) * self.dtype.itemsize

    def _hash(self, data: memoryview) -> None:
        while len(data):
            piece = data[: BLOCK - self._filled]
            self._hashed.update(piece)
            self._filled += len(piece)
            data = data[len(piece) :]
            if self._filled == BLOCK:
                self._end_block()

    def _end_block(self) -> None:
        self._checksums.append(self._hashed.hexdigest())
        self._hashed, self._filled = xxhash.xxh3_64(), 0


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of format 1.0, padded to `HEADER` bytes, so that it can be written after the values."""
    text = f"{{'descr': {dtype.newbyteorder('<').str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    begin = np.lib.format.magic(1, 0) + (HEADER - 10).to_bytes(2, "little")
    return begin + text.encode().ljust(HEADER - 11) + b"\n"


def read_pieces(file: Any, size: int) -> Iterator[memoryview]:
    """Yield the next ``size`` bytes of a file in pieces of at most `BLOCK` bytes; fewer if it ends before."""
    piece = memoryview(bytearray(min(BLOCK, size)))
    while size > 0 and (count := file.readinto(piece[: min(len(piece), size)])):
        yield piece[:count]
        size -= count


def values_begin(path: Path, array: StoredArray) -> int:
    """Return where the values of an array begin in its file, in bytes.

    Raises:
        InputError: the file is missing, or its header or its size is not what the manifest says.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise InputError(f"{path} is no regular file; {ADVICE}")
        with path.open("rb") as file:
            shape, fortran, dtype = _read_header(file)
            begin = file.tell()
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; {ADVICE}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or reason(error)}); {ADVICE}") from error
    except InputError:
        raise
    except Exception as error:  # NumPy's parser may raise anything on a damaged header
        raise InputError(f"{path} is no array ({reason(error)}); {ADVICE}") from error
    expected = array.shape, False, np.dtype(array.dtype).newbyteorder("<")
    if (shape, fortran and len(shape) > 1, dtype) != expected:
        raise InputError(
            f"{path} holds {dtype} of shape {list(shape)}, not {array.dtype} of shape {list(array.shape)} in rows, as "
            f"the manifest says; {ADVICE}"
        )
    if about.st_size != begin + array.nbytes:
        kind = "cut short" if about.st_size < begin + array.nbytes else "too long"
        raise InputError(f"{path} is {kind}: {about.st_size:,} bytes, not {begin + array.nbytes:,}; {ADVICE}")
    return begin


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of format 1.0, the only one that plain arrays of a few dimensions have."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"format {version}, expected 1.0")
    return np.lib.format.read_array_header_1_0(file)


def map_array(path: Path, array: StoredArray) -> Array:
    """Return an array that is read from its file when it is used. Writing into it changes nothing in the file.

    Raises:
        InputError: as `values_begin`.
    """
    values_begin(path, array)
    try:
        with _no_room_for_writes():
            return np.load(path, mmap_mode="c", allow_pickle=False)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be mapped ({reason(error)}); check the limits of this process") from error


def as_tensor(array: Array) -> Tensor:
    """Return a mapped array as a tensor, without a copy."""
    with warnings.catch_warnings():  # arrays larger than memory are mapped read-only, of which torch warns
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


@contextlib.contextmanager
def _no_room_for_writes() -> Iterator[None]:
    """Ignore that the system refuses memory for the pages that would be written, as it does beyond its size."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
