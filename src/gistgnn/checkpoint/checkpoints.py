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
from gistgnn.io.digests import digest_in, problem_with, run_id
from gistgnn.io.records import RecordError, Schema, load_record, write_record

T = TypeVar("T")

KEPT = 2  # checkpoints of a run that are kept: the last ones
_STATE = "state.json"
_VERSION = 3
_SCHEMA: Schema = {"files": dict, "state": dict, "run": dict, "theta": (str, type(None))}
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ArithmeticError)
"""What reading damaged files raises."""


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
            return load_record(newest / _STATE, _VERSION, _SCHEMA)["state"] if newest else None
        except (OSError, RecordError):
            return None  # it is damaged, which its `Checkpoint` says

    def complete(
        self,
        rounds: int,
        state: dict[str, Any],
        run: dict[str, Any],
        shapes: Mapping[str, torch.Size],
        theta: str | None = None,
    ) -> None:
        """Complete a checkpoint once all ranks have written their tensors, and remove all but the last two.

        Args:
            rounds: number of rounds that are done.
            state: history and best scores, as JSON.
            run: the settings of the run; another run cannot resume from this checkpoint.
            shapes: those of all tensors.
            theta: the id of Θ's files, if Θ is on disk.

        Raises:
            InputError: some rows are missing, or the disk is full.
        """
        place = self.place(rounds)
        files = _complete_files(place, shapes) if shapes else {}
        write_record(place / _STATE, {"files": files, "theta": theta, "state": state, "run": run}, _VERSION)
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
        share: the files that this process checks, among those of all ranks: which process, of how many.

    Attributes:
        tensors: shape and type of every tensor.
        theta: the id of the files of Θ that belong to the checkpoint; None: Θ is in the checkpoint.

    Raises:
        InputError: the checkpoint is missing, damaged, or of another run (the message names the differing setting).
            Methods raise it if the files turn out to be damaged.
    """

    def __init__(self, place: Path, run: dict[str, Any], share: tuple[int, int] = (0, 1)) -> None:
        self._place = place
        if not place.is_dir():
            raise InputError(f"there is no {place} to resume from: put it where all machines see the same files")
        try:
            record = load_record(place / _STATE, _VERSION, _SCHEMA)
        except (OSError, RecordError) as error:
            raise self._damaged(f"{_STATE} {error}" if isinstance(error, RecordError) else reason(error)) from error
        require_same_run(place, record["run"], run)
        self._state: dict[str, Any] = record["state"]
        self.theta: str | None = record["theta"]
        self._check_files(record, *share)
        try:
            self._saved = saved_tensors(place)
        except _DAMAGE as error:
            raise self._damaged(reason(error)) from error
        self.tensors = {name: (saved.shape, saved.dtype) for name, saved in self._saved.items()}

    def state_as(self, kind: Callable[..., T]) -> T:
        """Return the saved state as an object: `kind` is called with its entries."""
        try:
            return kind(**self._state)
        except TypeError as error:
            raise self._damaged(reason(error)) from error

    def read(self, parts: Mapping[str, Part]) -> None:
        """Fill parts of tensors, in place."""
        try:
            read_parts(self._saved, parts)
        except _DAMAGE as error:
            raise self._damaged(reason(error)) from error

    def read_whole(self, name: str, device: torch.device | str = "cpu") -> torch.Tensor:
        """Return a whole tensor."""
        shape, dtype = self.tensors[name]
        tensor = torch.empty(shape, dtype=dtype, device=device)
        self.read({name: Part.whole(tensor)})
        return tensor

    def _check_files(self, record: dict[str, Any], rank: int, count: int) -> None:
        """Read the files of a share of the ranks once, and compare them with their digests."""
        files, run = record["files"], run_id(record["run"])
        for name in sorted(files)[rank::count]:
            if problem := problem_with(self._place / Path(name).name, digest=files[name], run=run):
                raise self._damaged(f"{name} {problem}")
        if extra := {path.name for path in self._place.glob("*.safetensors")} - files.keys():
            raise self._damaged(f"{min(extra)} is not of this checkpoint")

    def _damaged(self, why: str) -> InputError:
        before = [path for path in Checkpoints(self._place.parent).whole() if path < self._place]
        advice = f"resume from {before[-1].name}" if before else "start again"
        return InputError(f"the checkpoint {self._place} cannot be read ({why}): delete it to {advice}")


def require_same_run(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise InputError, naming the first setting that differs, unless a file's saved settings are those wanted."""
    wanted = json.loads(json.dumps(wanted))
    for key in sorted(saved.keys() | wanted.keys(), key=lambda key: (key == "parameters", key)):  # the long one last
        if saved.get(key) != wanted.get(key):
            raise InputError(
                f"{path} is of another run: {key} was {saved.get(key)!r}, now {wanted.get(key)!r}; "
                "use the same settings or another output directory"
            )


def _complete_files(place: Path, shapes: Mapping[str, torch.Size]) -> dict[str, str]:
    """Return the digests of the files in a checkpoint's folder, if they hold all rows of every tensor.

    Raises:
        InputError: they do not.
    """
    try:
        saved = saved_tensors(place)
        files = {path.name: digest_in(path) for path in sorted(place.glob("*.safetensors"))}
    except _DAMAGE as error:
        raise InputError(f"the checkpoint {place} cannot be read ({reason(error)}): check the disk") from error
    for name, shape in shapes.items():
        if name not in saved or saved[name].numel != shape.numel():
            raise InputError(
                f"the checkpoint {place} lacks rows of '{name}', which another rank has written: put it where all "
                "machines see the same files"
            )
    return files


def _remove(place: Path) -> None:
    """Remove a checkpoint; without its state it is incomplete at once."""
    (place / _STATE).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
