"""Tensors in safetensors files: where they lie, and reading parts of them without mapping the file.

A mapping's pages count as the process's memory, and a file that is cut short ends the process with a signal; what is
read into fresh memory does neither.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from gistgnn.errors import InputError, reason

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The types of numbers by their names in a header."""

NAMES = {dtype: name for name, dtype in DTYPES.items()}
LIMIT = 5 * 10**9  # bytes of a file, unless one tensor takes more
_MOST_HEADER = 100_000_000  # bytes, as the safetensors library allows
_PAGE = 4096


@dataclass(frozen=True)
class Place:
    """Where a tensor lies.

    Attributes:
        path: the safetensors file.
        offset: of the tensor's first byte in the file.
        shape: its sizes.
        dtype: the type of its numbers in the file.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


def find_tensors(path: Path) -> dict[str, Place]:
    """Return where every tensor of a safetensors file lies; the tensors themselves are not read.

    Raises:
        InputError: the file is missing, unreadable, no safetensors file, or cut short.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if size < 8 or length > min(_MOST_HEADER, size - 8):
                raise ValueError(f"it has {size} bytes, and no header of safetensors")
            header = json.loads(file.read(length))
            return _places(path, header, 8 + length, size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be loaded ({reason(error)}): make it again") from error


def _places(path: Path, header: dict[str, Any], start: int, size: int) -> dict[str, Place]:
    """Check that the tensors of a header fill the file from ``start`` to ``size`` without a gap."""
    found, spans = {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        place = Place(path, start + begin, tuple(map(int, entry["shape"])), DTYPES[entry["dtype"]])
        if min(place.shape, default=0) < 0 or end - begin != place.nbytes:
            raise ValueError(f"'{name}' {list(place.shape)} has {end - begin} bytes")
        found[name] = place
        spans.append((begin, end))
    before = 0
    for begin, end in sorted(spans):
        if begin != before:
            raise ValueError(f"its tensors leave a gap at byte {before}")
        before = end
    if start + before != size:
        raise ValueError(f"it has {size} bytes, its tensors take {start + before}")
    return found


class Readable(Protocol):
    """What gives tensors and parts of them."""

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """See `TensorFile.read`."""


class TensorFile:
    """An open file that several threads may read; it stays readable when its name is given to another file.

    Args:
        path: the file.
        mode: "rb", or "r+b" to write it as well.

    Raises:
        InputError: it cannot be opened.
    """

    def __init__(self, path: Path, mode: Literal["rb", "r+b"] = "rb") -> None:
        self.path, self._lock = path, threading.Lock()
        try:
            self._file = path.open(mode, buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror}): make it again") from error

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read a tensor of this file, or a part of a matrix, into fresh memory on the host.

        Args:
            place: of the tensor.
            rows: along the first dimension, start and stop given; None: all.
            columns: of a matrix, likewise.

        Returns:
            [rows, columns] of a matrix, [rows, ...] of another tensor, in the file's type of numbers.

        Raises:
            InputError: the file was cut short, or cannot be read.
        """
        if rows is None:
            out = torch.empty(place.shape, dtype=place.dtype, device="cpu")
            self.fill(out, place.offset)
            return out
        width = math.prod(place.shape[1:])
        offset = place.offset + rows.start * width * place.dtype.itemsize
        columns = columns or slice(0, width)
        wanted = columns.stop - columns.start
        if wanted == width or wanted * place.dtype.itemsize < _PAGE:  # whole rows come from the disk in either case
            out = torch.empty(rows.stop - rows.start, *place.shape[1:], dtype=place.dtype, device="cpu")
            self.fill(out, offset)
            return out if wanted == width else out[:, columns].contiguous()
        out = torch.empty(rows.stop - rows.start, wanted, dtype=place.dtype, device="cpu")
        for index, row in enumerate(out):
            self.fill(row, offset + (index * width + columns.start) * place.dtype.itemsize)
        return out

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fill(self, out: Tensor, offset: int) -> None:
        """Read consecutive bytes into a contiguous tensor.

        Raises:
            InputError: the file was cut short, or cannot be read.
        """
        self.fill_from(out, [(offset, out.nbytes)])

    def fill_from(self, out: Tensor, spans: Sequence[tuple[int, int]]) -> None:
        """Read stretches of the file, each an offset and a number of bytes, into a contiguous tensor one after another.

        Raises:
            InputError: the file was cut short, or cannot be read.
        """
        data, done = memoryview(out.view(-1).view(torch.uint8).numpy().data), 0
        try:
            with self._lock:
                for offset, size in spans:
                    self._file.seek(offset)
                    end = done + size
                    while done < end:  # the system moves at most 2 GiB at once
                        if not (count := self._file.readinto(data[done:end])):
                            raise OSError("it is cut short")
                        done += count
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror or error}): make it again") from error


def make_header(specs: Mapping[str, tuple[Sequence[int], torch.dtype]]) -> tuple[bytes, list[str], int]:
    """What a safetensors file begins with.

    Args:
        specs: the shape and type of every tensor, by name.

    Returns:
        The bytes, the names in the order in which the values follow, and how many bytes these take.
    """
    order = sorted(specs, key=lambda name: (-specs[name][1].itemsize, name))  # so that numbers are aligned
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name in order:
        shape, dtype = specs[name]
        end = begin + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order, begin


def shards_of(sizes: Mapping[str, int], limit: int = LIMIT) -> list[list[str]]:
    """Deal tensors of these bytes out to files: as many as the limit allows, in their order; at least one file.

    A tensor that takes more than the limit has a file of its own, after the others.
    """
    shards: list[list[str]] = [[]]
    large, held = [], 0
    for name, size in sizes.items():
        if size > limit:
            large.append([name])
            continue
        if shards[-1] and held + size > limit:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += size
    return [shard for shard in shards if shard or not large] + large


def row_pieces(rows: int, row_bytes: int, most: int) -> Iterator[slice]:
    """Consecutive rows of about ``most`` bytes each, at least one row."""
    step = max(most // max(row_bytes, 1), 1)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
