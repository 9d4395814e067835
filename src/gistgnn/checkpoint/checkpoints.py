"""The checkpoints of a run: where they lie, which of them are complete, and what they hold."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from gistgnn.checkpoint.storage import Part, read_parts, saved_tensors
from gistgnn.errors import InputError, reason
from gistgnn.io.whole_files import replacing

T = TypeVar("T")

KEPT = 2  # checkpoints of a run that are kept: the last ones
_STATE = "state.json"
_VERSION = 2
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)  # what reading damaged files raises


class Checkpoints:
    """The last checkpoints of a run, in a folder of their own.

    `round-00000012/` is the checkpoint after 12 rounds. It holds the tensors in a file of each rank (see
    `gistgnn.checkpoint.storage`), and state.json. That file is written last: without it the checkpoint is incomplete,
    and is ignored.

    Args:
        folder: where the checkpoints lie; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, rounds: int) -> Path:
        """Return the folder of the checkpoint after some rounds."""
        return self.folder / f"round-{rounds:08d}"

    @staticmethod
    def rounds_of(name: str) -> int:
        """Return after how many rounds a checkpoint was made, from the name of its folder."""
        return int(name.removeprefix("round-"))

    def whole(self) -> list[Path]:
        """Return the folders of the complete checkpoints, oldest first."""
        return sorted(path for path in self._all() if (path / _STATE).exists())

    def newest(self) -> Path | None:
        """Return the folder of the last complete checkpoint; None: there is none."""
        return next(reversed(self.whole()), None)

    def newest_state(self) -> dict[str, Any] | None:
        """Return the state in the last complete checkpoint, which may be of another run; None: there is none."""
        newest = self.newest()
        try:
            return json.loads((newest / _STATE).read_text(encoding="utf-8"))["state"] if newest else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is damaged, which its `Checkpoint` says

    def complete(
        self, rounds: int, state: dict[str, Any], run: dict[str, Any], shapes: Mapping[str, torch.Size]
    ) -> None:
        """Complete a checkpoint once all ranks have written their tensors, and remove all but the last two.

        Args:
            rounds: number of rounds that are done.
            state: history and best scores, as JSON.
            run: the settings of the run; another run cannot resume from this checkpoint.
            shapes: those of all tensors.

        Raises:
            InputError: some rows are missing, or the disk is full.
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
        """Remove incomplete checkpoints, which a killed process left."""
        for path in self._all() - set(self.whole()):
            shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for path in sorted(self._all()):
            _remove(path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _all(self) -> set[Path]:
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return {path for path in paths if re.fullmatch(r"round-\d{8,}", path.name)}


class Checkpoint:
    """A checkpoint opened for resuming.

    Args:
        place: the folder of the checkpoint.
        run: the settings of the run that resumes.

    Attributes:
        tensors: shape and type of every tensor.

    Raises:
        InputError: the checkpoint is missing, damaged, or of another run (the message names the differing setting).
            Methods raise it if the files turn out to be damaged.
    """

    def __init__(self, place: Path, run: dict[str, Any]) -> None:
        self._place = place
        if not place.is_dir():
            raise InputError(f"there is no {place} to resume from: put it where all machines see the same files")
        try:
            record = json.loads((place / _STATE).read_text(encoding="utf-8"))
            if record["version"] != _VERSION:
                raise ValueError(f"it is of version {record['version']}, this is {_VERSION}")
            if not all(isinstance(record[key], dict) for key in ("state", "run", "files")):
                raise ValueError("it lacks what this version writes")
            self._state: dict[str, Any] = record["state"]
            for name, size in record["files"].items():
                if (actual := (place / name).stat().st_size) != size:
                    raise ValueError(f"{name} has {actual} bytes, not {size}")
            self._saved = saved_tensors(place)
        except _DAMAGE as error:
            raise self._damaged(error) from error
        require_same_run(place, record["run"], run)
        self.tensors = {name: (saved.shape, saved.dtype) for name, saved in self._saved.items()}

    def state_as(self, kind: Callable[..., T]) -> T:
        """Return the saved state as an object: `kind` is called with its entries."""
        try:
            return kind(**self._state)
        except TypeError as error:
            raise self._damaged(error) from error

    def read(self, parts: Mapping[str, Part]) -> None:
        """Fill parts of tensors, in place."""
        try:
            read_parts(self._saved, parts)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def read_whole(self, name: str, device: torch.device | str = "cpu") -> torch.Tensor:
        """Return a whole tensor."""
        shape, dtype = self.tensors[name]
        tensor = torch.empty(shape, dtype=dtype, device=device)
        self.read({name: Part.whole(tensor)})
        return tensor

    def _damaged(self, error: Exception) -> InputError:
        before = [path for path in Checkpoints(self._place.parent).whole() if path < self._place]
        advice = f"resume from {before[-1].name}" if before else "start again"
        return InputError(f"the checkpoint {self._place} cannot be read ({reason(error)}): delete it to {advice}")


def require_same_run(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise InputError, naming the first setting that differs, unless a file's saved settings are those wanted."""
    wanted = json.loads(json.dumps(wanted))
    for key in sorted(saved.keys() | wanted.keys(), key=lambda key: (key == "parameters", key)):  # the long one last
        if saved.get(key) != wanted.get(key):
            raise InputError(
                f"{path} is of another run: {key} was {saved.get(key)!r}, now {wanted.get(key)!r}; "
                "use the same settings or another output directory"
            )


def _require_all(place: Path, shapes: Mapping[str, torch.Size]) -> None:
    """Raise InputError if the files in a checkpoint's folder do not hold all rows of every tensor."""
    try:
        saved = saved_tensors(place)
    except _DAMAGE as error:
        raise InputError(f"the checkpoint {place} cannot be read ({reason(error)}): check the disk") from error
    for name, shape in shapes.items():
        if name not in saved or saved[name].numel != shape.numel():
            raise InputError(
                f"the checkpoint {place} lacks rows of '{name}', which another rank has written: put it where all "
                "machines see the same files"
            )


def _remove(place: Path) -> None:
    """Remove a checkpoint; without its state it is incomplete at once."""
    (place / _STATE).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
