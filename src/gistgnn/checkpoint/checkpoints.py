"""The checkpoints of a run: which there are, which are whole, and what they hold."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from gistgnn.checkpoint.part import Part
from gistgnn.errors import InputError, reason
from gistgnn.io.whole_files import replacing

T = TypeVar("T")

KEPT = 2  # of the last checkpoints
FILE_BYTES = 64 * 2**20  # of a file of tensors, unless one takes more; torch copies each file twice to write it
_STATE = "state.json"
_VERSION = 1


class Checkpoints:
    """The last checkpoints of a run, in a folder that holds nothing else.

    `round-00000012/` is the one after 12 rounds: the files of tensors of one or several processes (see
    `gistgnn.checkpoint.storage`), and state.json, which is written last: where it is missing the checkpoint is torn,
    and is not looked at.

    Args:
        folder: where they are; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, rounds: int) -> Path:
        """The folder of the checkpoint after some rounds."""
        return self.folder / f"round-{rounds:08d}"

    def whole(self) -> list[Path]:
        """The folders of the checkpoints that are not torn, in order."""
        return sorted(path for path in self._all() if (path / _STATE).exists())

    def newest(self) -> Path | None:
        """The last of them, or None where there is none."""
        return next(reversed(self.whole()), None)

    def complete(
        self, rounds: int, state: dict[str, Any], run: dict[str, Any], shapes: Mapping[str, torch.Size]
    ) -> None:
        """Declare a checkpoint whole, once all processes have written their tensors; older than the last two go.

        Args:
            rounds: that are done.
            state: history, best scores: what JSON can hold.
            run: what was being run; a checkpoint is resumed only by the same run.
            shapes: of all tensors.

        Raises:
            InputError: some rows are missing, or the disk does not take it.
        """
        place = self.place(rounds)
        if shapes:
            _require_all(place, shapes)
        files = {path.name: path.stat().st_size for path in sorted(place.glob("*.safetensors"))}
        record = {"version": _VERSION, "files": files, "state": state, "run": run}
        with replacing(place / _STATE) as path:
            path.write_text(json.dumps(record), encoding="utf-8")
        for old in self.whole()[:-KEPT]:
            _remove(old)

    def remove_torn(self) -> None:
        """Remove what a killed process has begun to write."""
        for path in self._all() - set(self.whole()):
            shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove them all, and the folder where it holds nothing else."""
        for path in sorted(self._all()):
            _remove(path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _all(self) -> set[Path]:
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return {path for path in found if re.fullmatch(r"round-\d{8,}", path.name)}


class Checkpoint:
    """One checkpoint, open to be gone on from.

    Args:
        place: its folder.
        run: what is to go on.

    Attributes:
        tensors: the shape and type of each.

    Raises:
        InputError: it is not there, damaged, or of another run (the differing setting is named).
    """

    def __init__(self, place: Path, run: dict[str, Any]) -> None:
        self._place = place
        if not place.is_dir():
            raise InputError(f"there is no {place} to go on from: put it where all machines see the same files")
        try:
            record = json.loads((place / _STATE).read_text(encoding="utf-8"))
            if record["version"] != _VERSION:
                raise ValueError(f"it is of version {record['version']}, this is {_VERSION}")
            if not all(isinstance(record[key], dict) for key in ("state", "run", "files")):
                raise ValueError("it is not what this version writes")
            self._state: dict[str, Any] = record["state"]
            _require_files(place, record["files"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(error) from error
        require_same_run(place, record["run"], run)
        self.tensors = self._specs() if record["files"] else {}

    def state_as(self, kind: Callable[..., T]) -> T:
        """What was saved of the run beside tensors.

        Raises:
            InputError: it does not have the fields of this kind.
        """
        try:
            return kind(**self._state)
        except TypeError as error:
            raise self._damaged(error) from error

    def read(self, parts: Mapping[str, Part]) -> None:
        """Fill parts of tensors, in place.

        Raises:
            InputError: they cannot be read.
        """
        from gistgnn.checkpoint.storage import read_parts  # slow to import

        try:
            read_parts(self._place, parts)
        except Exception as error:  # of torch, safetensors or the system
            raise self._damaged(error) from error

    def read_whole(self, name: str, device: torch.device | str = "cpu") -> torch.Tensor:
        """Read all of a tensor."""
        shape, dtype = self.tensors[name]
        found = torch.empty(shape, dtype=dtype, device=device)
        self.read({name: Part.whole(found)})
        return found

    def _specs(self) -> dict[str, tuple[torch.Size, torch.dtype]]:
        from gistgnn.checkpoint.storage import saved_parts

        try:
            return {name: (shape, dtype) for name, (shape, dtype, _) in saved_parts(self._place).items()}
        except Exception as error:  # of torch, safetensors or the system
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        before = [path for path in Checkpoints(self._place.parent).whole() if path < self._place]
        where = f"go on from {before[-1].name}" if before else "start again"
        return InputError(f"the checkpoint {self._place} cannot be read ({reason(error)}): delete it to {where}")


def require_same_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise InputError, naming the first setting that differs, unless a file's run is the one that is wanted."""
    wanted = json.loads(json.dumps(wanted))
    for key in sorted(found.keys() | wanted.keys(), key=lambda key: (key == "parameters", key)):  # the long one last
        if found.get(key) != wanted.get(key):
            raise InputError(
                f"{path} is of another run: {key} was {found.get(key)!r}, now {wanted.get(key)!r}; "
                "use the same settings or another output directory"
            )


def _require_files(place: Path, files: Mapping[str, int]) -> None:
    for name, size in files.items():
        if (found := (place / name).stat().st_size) != size:
            raise ValueError(f"{name} has {found} bytes, not {size}")


def _require_all(place: Path, shapes: Mapping[str, torch.Size]) -> None:
    """Refuse a checkpoint of whose tensors some rows were written elsewhere."""
    from gistgnn.checkpoint.storage import saved_parts

    try:
        held = {name: count for name, (_, _, count) in saved_parts(place).items()}
    except Exception as error:  # of torch, safetensors or the system
        raise InputError(f"the checkpoint {place} cannot be read ({reason(error)}): see to the disk") from error
    for name, shape in shapes.items():
        if held.get(name, 0) != shape.numel():
            raise InputError(
                f"the checkpoint {place} lacks rows of '{name}', which another rank has written: put it where all "
                "machines see the same files"
            )


def _remove(place: Path) -> None:
    """Remove a checkpoint, which is torn from the first moment on."""
    (place / _STATE).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
