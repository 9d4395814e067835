"""Tensors in a safetensors file that is read and written in place, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.io.digests import RUN
from gistgnn.io.tensors import Place, TensorFile, make_header, read_header
from gistgnn.theta.disk.row_batches import row_batches
from gistgnn.theta.disk.row_checksums import Checksums, block_checksums, block_rows, header_checksum, row_bytes
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Cut, gather_into, scatter
from gistgnn.utils.tensor_bytes import bytes_of

WRITTEN = 2**24  # bytes at a time
START_AGAIN = "this Θ cannot be used: start the run again"

Range = slice  # a method has the other name
Rows = Callable[[int, int], Tensor]  # (first, last) among the rows of a cut -> the values of these rows


class EditableFile(TensorFile):
    """One safetensors file whose tensors are read and written in place.

    Rows are compared with their checksums whenever they are read. The file is read and written, not mapped into memory:
    mapped pages would count as the process's memory, and a full disk would end the process with a signal. Methods that
    write raise an InputError if the disk does not take it.

    Args:
        path: the file.
        checksums: those of its header and its rows; they change when rows are written.
        mode: "rb" to read only.
        advice: what to do about a damaged file; it ends the message.

    Attributes:
        specs: the shape and type of every tensor.
        places: where every tensor lies.

    Raises:
        InputError: it cannot be opened, is damaged, or of another run. Methods that read raise it, too.
    """

    def __init__(
        self, path: Path, checksums: Checksums, mode: Literal["rb", "r+b"] = "r+b", advice: str = START_AGAIN
    ) -> None:
        self.checksums, self._advice = checksums, advice
        self.places = self._checked_places(path)
        self.specs = {name: TensorSpec(torch.Size(place.shape), place.dtype) for name, place in self.places.items()}
        self._names = {place: name for name, place in self.places.items()}
        self._seen = {name: np.zeros(len(own), bool) for name, own in checksums.blocks.items()}
        super().__init__(path, mode)

    @classmethod
    def create(cls, path: Path, specs: Mapping[str, TensorSpec], run: str, advice: str = START_AGAIN) -> EditableFile:
        """Make a file of zeros, which take no room on the disk until they are overwritten."""
        header, _, size = make_header(specs, {RUN: run})
        try:
            with path.open("xb") as file:
                file.write(header)
                file.truncate(len(header) + size)
        except OSError as error:
            raise unwritable(path, error) from error
        return cls(path, Checksums.of_zeros(run, header, specs), advice=advice)

    def slice(self, name: str, cut: Cut | None = None) -> Tensor:
        """The cut's entries of a tensor; None: all of them."""
        spec = self.specs[name]
        cut = cut or (None,) * len(spec.shape)
        wanted = [spec.shape[i] if p is None else len(p) for i, p in enumerate(cut)]
        if not wanted:
            return self.rows(name, 0, 1)
        out = torch.empty(wanted, dtype=spec.dtype)
        for batch in row_batches(spec, cut[0]):
            rows = out[batch.first : batch.first + len(batch.local)]
            plain = batch.is_dense and all(p is None for p in cut[1:])
            found = rows if plain else torch.empty(batch.size, *spec.shape[1:], dtype=spec.dtype)
            self._fill_checked(name, found, batch.spans)
            if not plain:
                gather_into(rows, found, (None if batch.is_dense else torch.from_numpy(batch.local), *cut[1:]))
        return out

    def update(self, name: str, parts: Sequence[tuple[Cut, Rows]], *, checked: bool = True) -> None:
        """Set the entries of several cuts of a tensor, in one pass over it.

        Args:
            name: the tensor.
            parts: cuts, each with a function that returns the values of its rows; it is called with ranges of these
                rows, in order.
            checked: compare the rows with their checksums before they change. Not after a kill in the middle of this
                method: rows may have been written then, and their checksums not.
        """
        spec = self.specs[name]
        if not spec.shape:
            for _, values in parts:
                self.write(name, values(0, 1))
            return
        rows = [None if cut[0] is None else cut[0].numpy() for cut, _ in parts]
        step = max(WRITTEN // max(block_rows(spec) * row_bytes(spec), 1), 1) * block_rows(spec)
        for start in range(0, spec.shape[0], step):
            stop = min(start + step, spec.shape[0])
            ranges = [(start, stop) if own is None else tuple(np.searchsorted(own, (start, stop))) for own in rows]
            given = sum(b - a for a, b in ranges)
            if not given:
                continue
            found = torch.empty(stop - start, *spec.shape[1:], dtype=spec.dtype)
            whole_rows = all(p is None for cut, _ in parts for p in cut[1:])
            if not (whole_rows and given == stop - start):
                self._fill_checked(name, found, [(start, stop)], checked=checked)
            for (cut, values), own, (a, b) in zip(parts, rows, ranges, strict=True):
                if b > a:
                    local = None if own is None else torch.from_numpy(own[a:b] - start)
                    scatter(found, (local, *cut[1:]), values(int(a), int(b)))
            self._write_rows(name, start, found)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Consecutive rows of a tensor; a single number is one row."""
        spec = self.specs[name]
        if not spec.shape:
            found = torch.empty((), dtype=spec.dtype)
            self._fill_checked(name, found, [(0, 1)])
            return found
        per = block_rows(spec)
        first, last = start // per * per, min(-(-stop // per) * per, spec.shape[0])  # whole blocks
        found = torch.empty(last - first, *spec.shape[1:], dtype=spec.dtype)
        self._fill_checked(name, found, [(first, last)])
        return found[start - first : stop - first]

    def read(self, place: Place, rows: Range | None = None, columns: Range | None = None) -> Tensor:
        """Read a tensor of this file, or some rows and columns of it, as a model does; see `TensorFile.read`.

        For some columns, whole rows are read the first time, to check them, and later only these columns.
        """
        name = self._names[place]
        if rows is None:
            return self.slice(name)
        if columns is None or columns.stop - columns.start == self.specs[name].shape[1]:
            return self.rows(name, rows.start, rows.stop)
        per = block_rows(self.specs[name])
        seen = self._seen[name][rows.start // per : -(-rows.stop // per)]
        if seen.all():
            return super().read(place, rows, columns)
        found = self.slice(name, (torch.arange(rows.start, rows.stop), torch.arange(columns.start, columns.stop)))
        seen[:] = True
        return found

    def write(self, name: str, values: Tensor) -> None:
        """Set a whole tensor."""
        spec = self.specs[name]
        self._write_rows(name, 0, values.detach().cpu().to(spec.dtype).reshape(spec.shape or (1,)).contiguous())

    def write_flat(self, name: str, start: int, values: Tensor) -> None:
        """Set consecutive entries of a tensor, in the order of memory; call `sum_up` when all are written."""
        spec = self.specs[name]
        self._write(self.places[name].offset + start * spec.dtype.itemsize, values.to(spec.dtype).contiguous())

    def sum_up(self) -> None:
        """Compute the checksums of all rows from the file."""
        for name, spec in self.specs.items():
            whole = spec if spec.shape else TensorSpec(torch.Size([1]), spec.dtype)
            for batch in row_batches(whole, None):
                found = torch.empty(batch.size, *whole.shape[1:], dtype=spec.dtype)
                self._fill_checked(name, found, batch.spans, checked=False)
                self._set_checksums(name, batch.first, found)

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _checked_places(self, path: Path) -> dict[str, Place]:
        """Return where the tensors lie, if the header is what it was."""
        try:
            places, metadata = read_header(path)  # refuses a pipe, which would wait for ever
            fits = header_checksum(path) == self.checksums.header
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror or reason(error)}); {self._advice}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
            raise InputError(f"{path} is damaged ({reason(error)}); {self._advice}") from error
        if not fits:
            ours = metadata.get(RUN) == self.checksums.run
            why = "damaged: its header has changed" if ours else "of another run"
            raise InputError(f"{path} is {why}; {self._advice}")
        return places

    def _fill_checked(self, name: str, out: Tensor, spans: Sequence[tuple[int, int]], *, checked: bool = True) -> None:
        """Read whole blocks of rows, one span after another, and compare them with their checksums."""
        spec, place = self.specs[name], self.places[name].offset
        size, per = row_bytes(spec), block_rows(spec)
        self.fill_from(out, [(place + a * size, (b - a) * size) for a, b in spans])
        if not checked:
            return
        blocks = np.concatenate([np.arange(a // per, -(-b // per)) for a, b in spans])
        found = block_checksums(out, spec)
        blocks = blocks[: len(found)]  # rows without columns have no bytes, and no checksums
        wrong = blocks[found != self.checksums.blocks[name][blocks]]
        if len(wrong):
            first = int(wrong[0]) * per
            raise InputError(
                f"{self.path} is damaged, or of another round: rows {first} to {first + per} of '{name}' do not fit "
                f"their checksum; {self._advice}"
            )

    def _write_rows(self, name: str, start: int, rows: Tensor) -> None:
        """Write whole blocks of rows, from row `start` on."""
        self._write(self.places[name].offset + start * row_bytes(self.specs[name]), rows)
        self._set_checksums(name, start, rows)

    def _set_checksums(self, name: str, start: int, rows: Tensor) -> None:
        found, first = block_checksums(rows, self.specs[name]), start // block_rows(self.specs[name])
        self.checksums.blocks[name][first : first + len(found)] = found

    def _write(self, place: int, values: Tensor) -> None:
        left = bytes_of(values)
        try:
            with self._lock:
                self._file.seek(place)
                while left:  # the system moves at most 2 GiB at once
                    left = left[self._write_some(left) :]
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _write_some(self, data: memoryview) -> int:
        return self._file.write(data)


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
