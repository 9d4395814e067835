"""Tensors in a safetensors file that is read and written in place, some rows at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.io.tensors import TensorFile, find_tensors, make_header
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Cut, gather_into, scatter

READ, WRITTEN = 2**22, 2**24  # bytes at a time; the C library reuses memory of this size
_GAP = 2**16  # bytes between two wanted rows that are read rather than skipped

Rows = Callable[[int, int], Tensor]  # (first, last) among the rows of a cut -> the values of these rows


class EditableFile(TensorFile):
    """One safetensors file whose tensors are read and written in place.

    The file is read and written, not mapped into memory: mapped pages would count as the process's memory, and a full
    disk would end the process with a signal. Methods that write raise an InputError if the disk does not take it.

    Args:
        path: the file.

    Raises:
        InputError: it cannot be opened, is not a safetensors file, or has not the size that its header gives.
    """

    def __init__(self, path: Path) -> None:
        found = find_tensors(path)
        self._places = {name: place.offset for name, place in found.items()}
        self.specs = {name: TensorSpec(torch.Size(place.shape), place.dtype) for name, place in found.items()}
        super().__init__(path, "r+b")

    @classmethod
    def create(cls, path: Path, specs: Mapping[str, TensorSpec]) -> EditableFile:
        """Make a file of zeros, which take no room on the disk until they are overwritten."""
        header, _, size = make_header(specs)
        try:
            with path.open("xb") as file:
                file.write(header)
                file.truncate(len(header) + size)
        except OSError as error:
            raise unwritable(path, error) from error
        return cls(path)

    def slice(self, name: str, cut: Cut | None = None) -> Tensor:
        """The cut's entries of a tensor; None: all of them."""
        spec = self.specs[name]
        cut = cut or (None,) * len(spec.shape)
        wanted = [spec.shape[i] if p is None else len(p) for i, p in enumerate(cut)]
        if not wanted:
            return self.rows(name, 0, 1)
        out = torch.empty(wanted, dtype=spec.dtype)
        for batch in _batches(spec, cut[0]):
            rows = out[batch.first : batch.first + len(batch.local)]
            plain = batch.is_dense and all(p is None for p in cut[1:])
            found = rows if plain else torch.empty(batch.size, *spec.shape[1:], dtype=spec.dtype)
            place, row_bytes = self._places[name], _row_bytes(spec)
            self.fill_from(found, [(place + a * row_bytes, (b - a) * row_bytes) for a, b in batch.spans])
            if not plain:
                gather_into(rows, found, (None if batch.is_dense else torch.from_numpy(batch.local), *cut[1:]))
        return out

    def update(self, name: str, parts: Sequence[tuple[Cut, Rows]]) -> None:
        """Set the entries of several cuts of a tensor, in one pass over it.

        Args:
            name: the tensor.
            parts: cuts, each with a function that returns the values of its rows; it is called with ranges of these
                rows, in order.
        """
        spec = self.specs[name]
        if not spec.shape:
            for _, values in parts:
                self._write(self._places[name], values(0, 1).reshape(1).to(spec.dtype))
            return
        rows = [None if cut[0] is None else cut[0].numpy() for cut, _ in parts]
        row_bytes = _row_bytes(spec)
        step = max(WRITTEN // max(row_bytes, 1), 1)
        for start in range(0, spec.shape[0], step):
            stop = min(start + step, spec.shape[0])
            ranges = [(start, stop) if own is None else tuple(np.searchsorted(own, (start, stop))) for own in rows]
            given = sum(b - a for a, b in ranges)
            if not given:
                continue
            found = torch.empty(stop - start, *spec.shape[1:], dtype=spec.dtype)
            place = self._places[name] + start * row_bytes
            whole_rows = all(p is None for cut, _ in parts for p in cut[1:])
            if not (whole_rows and given == stop - start):
                self.fill(found, place)
            for (cut, values), own, (a, b) in zip(parts, rows, ranges, strict=True):
                if b > a:
                    local = None if own is None else torch.from_numpy(own[a:b] - start)
                    scatter(found, (local, *cut[1:]), values(int(a), int(b)))
            self._write(place, found)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Consecutive rows of a tensor; a single number is one row."""
        spec = self.specs[name]
        shape = (stop - start, *spec.shape[1:]) if spec.shape else ()
        found = torch.empty(shape, dtype=spec.dtype)
        self.fill(found, self._places[name] + start * _row_bytes(spec))
        return found

    def write_flat(self, name: str, start: int, values: Tensor) -> None:
        """Set consecutive entries of a tensor, in the order of memory."""
        spec = self.specs[name]
        self._write(self._places[name] + start * spec.dtype.itemsize, values.to(spec.dtype).contiguous())

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _write(self, place: int, values: Tensor) -> None:
        left = memoryview(values.reshape(-1).view(torch.uint8).numpy().data) if values.numel() else memoryview(b"")
        try:
            with self._lock:
                self._file.seek(place)
                while left:  # the system moves at most 2 GiB at once
                    left = left[self._write_some(left) :]
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _write_some(self, data: memoryview) -> int:
        return self._file.write(data)


@dataclass(frozen=True)
class _Batch:
    """Rows of a cut that are read together."""

    first: int  # the place of the first row among all rows of the cut
    spans: list[tuple[int, int]]  # of the tensor's rows that are read, some of which the cut may not have
    local: np.ndarray[Any, np.dtype[np.int64]]  # the places of the cut's rows among the rows that are read

    @property
    def size(self) -> int:
        """The number of rows that are read."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def is_dense(self) -> bool:
        """Whether the cut has all rows that are read."""
        return self.size == len(self.local)


def _batches(spec: TensorSpec, positions: Tensor | None) -> Iterator[_Batch]:
    row_bytes = max(_row_bytes(spec), 1)
    step = max(READ // row_bytes, 1)
    if positions is None:
        for start in range(0, spec.shape[0], step):
            stop = min(start + step, spec.shape[0])
            yield _Batch(start, [(start, stop)], np.arange(stop - start))
        return
    rows = positions.numpy()
    apart = np.diff(rows) > max(_GAP // row_bytes, 1)
    read = np.where(apart, 1, np.diff(rows)).cumsum()  # rows read up to each wanted row, gaps included
    first = 0
    while first < len(rows):
        base = 0 if first == 0 else int(read[first - 1])
        last = max(int(np.searchsorted(read, base + step, side="left")), first)  # the last row of this batch
        cuts = first + 1 + np.flatnonzero(apart[first:last])
        starts, stops = rows[[first, *cuts]], rows[[*(cuts - 1), last]] + 1
        local = np.concatenate([[0], read[first:last] - base])
        yield _Batch(first, list(zip(starts.tolist(), stops.tolist(), strict=True)), local)
        first = last + 1


def _row_bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape[1:]) * spec.dtype.itemsize


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error for a file of Θ that cannot be written."""
    return InputError(
        f"cannot write {path}: {error.strerror or reason(error)}; make room, or choose another disk; the state "
        "before is kept, and the run can be resumed from it"
    )
