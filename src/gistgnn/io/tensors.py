"""Safetensors files: where the tensors lie, reading parts of them, and writing them.

Files are read, not mapped. The pages of a mapping count as the process's memory, and a mapped file that is cut short
ends the process with a signal.
"""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import xxhash
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.io.digests import DIGEST, PLACE, UNKNOWN
from gistgnn.utils.tensor_bytes import bytes_of

_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_INTEGERS = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
DTYPES = {**_FLOATS, **_INTEGERS, "BOOL": torch.bool}  # by their names in a file's header
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LIMIT = 5 * 10**9  # bytes of a file, unless one tensor takes more
_LONGEST_HEADER = 100_000_000  # bytes, as the safetensors library allows
_PAGE = 4096


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: ``offset`` is the position of its first byte in the safetensors file."""

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
        return read_header(path)[0]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} cannot be loaded ({reason(error)}): make it again") from error


def read_header(path: Path) -> tuple[dict[str, Place], dict[str, str]]:
    """Return where every tensor of a safetensors file lies, and the metadata of the file.

    Raises:
        OSError: the file cannot be read.
        Exception: one of those that `find_tensors` catches; the file is damaged.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
        if size < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise ValueError(f"it has {size} bytes, and no header of safetensors")
        header = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    return _places(path, header, 8 + length, size), metadata


def _places(path: Path, header: dict[str, Any], start: int, size: int) -> dict[str, Place]:
    """Return the places in a header; the tensors must fill the file from `start` to `size` without a gap."""
    places: dict[str, Place] = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        place = Place(path, start + begin, tuple(map(int, entry["shape"])), DTYPES[entry["dtype"]])
        if min(place.shape, default=0) < 0 or end - begin != place.nbytes:
            raise ValueError(f"'{name}' {list(place.shape)} has {end - begin} bytes")
        places[name] = place
    covered = start
    for place in sorted(places.values(), key=lambda place: (place.offset, place.nbytes)):
        if place.offset != covered:
            raise ValueError(f"its tensors leave a gap at byte {covered - start}")
        covered += place.nbytes
    if covered != size:
        raise ValueError(f"it has {size} bytes, its tensors take {covered}")
    return places


class Readable(Protocol):
    """A source of tensors that can be read in parts: a file, memory, or other ranks."""

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read a tensor, or some rows and columns of it; see `TensorFile.read`."""


class TensorFile:
    """An open safetensors file that several threads may read. It stays readable when another file takes its name.

    Raises:
        InputError: the file cannot be opened.
    """

    def __init__(self, path: Path, mode: Literal["rb", "r+b"] = "rb") -> None:
        self.path, self._lock = path, threading.Lock()
        try:
            self._file = path.open(mode, buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror}): make it again") from error

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read a tensor of this file, or some rows and columns with start and stop, into new memory on the host.

        Raises:
            InputError: the file is cut short, or cannot be read.
        """
        if rows is None:
            out = torch.empty(place.shape, dtype=place.dtype, device="cpu")
            self.fill(out, place.offset)
            return out
        width = math.prod(place.shape[1:])
        offset = place.offset + rows.start * width * place.dtype.itemsize
        columns = columns or slice(0, width)
        wanted = columns.stop - columns.start
        if wanted == width or wanted * place.dtype.itemsize < _PAGE:  # the disk gives whole pages, so whole rows
            out = torch.empty(rows.stop - rows.start, *place.shape[1:], dtype=place.dtype, device="cpu")
            self.fill(out, offset)
            return out if wanted == width else out[:, columns].contiguous()
        out = torch.empty(rows.stop - rows.start, wanted, dtype=place.dtype, device="cpu")
        starts = range(columns.start, len(out) * width, width)
        self.fill_from(out, [(offset + start * out.itemsize, wanted * out.itemsize) for start in starts])
        return out

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fill(self, out: Tensor, offset: int) -> None:
        """Read consecutive bytes, from a position of the file on, into a contiguous tensor; see `fill_from`."""
        self.fill_from(out, [(offset, out.nbytes)])

    def fill_from(self, out: Tensor, spans: Sequence[tuple[int, int]]) -> None:
        """Read several spans of the file, each a position and a number of bytes, one after another into a tensor.

        Raises:
            InputError: the file is cut short, or cannot be read.
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


Specs = Mapping[str, tuple[Sequence[int], torch.dtype]]  # the shape and type of every tensor, by name


def write_tensors(
    path: Path, specs: Specs, values: Callable[[str], Iterable[Tensor]], metadata: Mapping[str, str] | None = None
) -> str:
    """Write a safetensors file with its digest (see `gistgnn.io.digests`), and wait until it is on the disk.

    ``values`` returns the values of a tensor on the host, in consecutive pieces; it is called once for each tensor.
    ``metadata`` are texts by name, for `read_header`.

    Returns:
        The digest.

    Raises:
        InputError: safetensors has no such type of numbers.
        OSError: the file cannot be written.
    """
    header, order, _ = make_header(specs, {DIGEST: UNKNOWN, **(metadata or {})})
    hashed = xxhash.xxh3_128(header)
    with path.open("wb") as file:
        file.write(header)
        for name in order:
            for piece in values(name):
                data = bytes_of(piece)
                hashed.update(data)
                file.write(data)
        file.seek(PLACE)
        file.write(hashed.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())
    return hashed.hexdigest()


def make_header(specs: Specs, metadata: Mapping[str, str] | None = None) -> tuple[bytes, list[str], int]:
    """Return the header of a safetensors file, the names in the order of the values, and the bytes of all values.

    Raises:
        InputError: safetensors has no such type of numbers.
    """
    order = sorted(specs, key=lambda name: (-specs[name][1].itemsize, name))  # aligns the numbers
    header: dict[str, Any] = {"__metadata__": {**(metadata or {}), "format": "pt"}}
    begin = 0
    for name in order:
        shape, dtype = specs[name]
        if dtype not in NAMES:
            raise InputError(f"'{name}' is {dtype}, expected one of {', '.join(map(str, NAMES))}: convert it")
        end = begin + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order, begin


def shards_of(sizes: Mapping[str, int], limit: int = LIMIT) -> list[list[str]]:
    """Distribute tensors over files of at most `limit` bytes, in their order; there is at least one file.

    A tensor that takes more has a file of its own, after the others.
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
    """Cut rows into slices of consecutive ones, of at most `most` bytes each but at least one row."""
    step = max(most // max(row_bytes, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
