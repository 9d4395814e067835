"""The checkpoints of a run, from which it resumes as if it had never stopped.

`round-00000012/` is the checkpoint after 12 rounds. Every rank writes the rows that it holds into a
safetensors file, whose name ends with its digest; its metadata say which rows these are. So a run
may be resumed with another number of ranks. state.json is written last: without it the checkpoint
is incomplete, and is ignored.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import check_digest, write_tensors
from gistgnn.storage.whole_files import reading, remove_files, sync, temporary_path, writing
from gistgnn.utils.tensors import is_digest

T = TypeVar("T")

KEPT = 2  # checkpoints of a run that are kept: the last ones
VERSION = 7  # of a checkpoint's form; raise it when the state of a run has other entries
# The folders of the checkpoints of narrow models, which a run trains one after another.
NARROW = r"(part|stage)-\d+"
_STATE = "state.json"


class _Manifest(msgspec.Struct):
    """What state.json holds."""

    files: list[str]  # their names
    state: dict[str, Any]  # how far the run has come
    run: dict[str, dict[str, Any]]  # its fingerprint
    theta: str | None  # the id of Θ's own files; None where Θ is in the checkpoint
    folders: list[str] = []  # of Θ's own files, relative to that of the checkpoints
    version: int = VERSION  # of this form


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a tensor that this process holds."""

    tensor: Tensor  # the rows, [rows, ...]; for a single number, the number itself
    shape: torch.Size  # of the whole tensor
    first: int = 0  # which row of the whole tensor is the first of these

    @classmethod
    def whole(cls, tensor: Tensor) -> "Part":
        return cls(tensor, tensor.shape)


@dataclass(frozen=True)
class Checkpoints:
    """The last checkpoints of a run, in a folder of their own, which need not exist."""

    folder: Path

    def folder_of(self, rounds: int) -> Path:
        """Return the folder of the checkpoint after some rounds, which need not exist."""
        return self.folder / f"round-{rounds:08d}"

    def _all_folders(self) -> set[Path]:
        """Return the folders of all checkpoints, complete or not."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return {
            path
            for path in paths
            if re.fullmatch(r"round-\d{8,}", path.name) and not path.is_symlink()
        }

    def complete_folders(self) -> list[Path]:
        """Return the folders of the complete checkpoints, oldest first."""
        return sorted(path for path in self._all_folders() if (path / _STATE).exists())

    def newest(self) -> Path | None:
        """Return the folder of the last complete checkpoint; None if there is none."""
        return next(reversed(self.complete_folders()), None)

    def newest_state(self, kind: type[T]) -> T | None:
        """Return the state in the last complete checkpoint, which may be of another run.

        Returns None if no state can be read.
        """
        # A damaged state is refused with a message by `Checkpoint`.
        with contextlib.suppress(OSError, ValueError):
            if newest := self.newest():
                return msgspec.convert(read_json(newest / _STATE, _Manifest, "").state, kind)
        return None

    def write(self, rounds: int, parts: Mapping[str, Part], rank: int) -> None:
        """Write the parts of a rank into its file, and wait until it is on the disk.

        The parts are named, and none of them is empty.
        """
        folder = self.folder_of(rounds)
        if (folder / _STATE).exists():  # a resumed run stops before its next round
            return
        path = temporary_path(folder / "part")
        tensors = {name: part.tensor for name, part in parts.items()}
        rows = {name: [part.first, list(part.shape)] for name, part in parts.items()}
        with writing(folder, "make room and resume the run: earlier checkpoints are kept"):
            folder.mkdir(parents=True, exist_ok=True)
            digest = write_tensors(path, tensors, {"rows": json.dumps(rows)})
            path.rename(folder / f"rank-{rank:05d}-{digest}.safetensors")
            sync(folder)

    def complete(
        self,
        rounds: int,
        state: dict[str, Any],
        run: dict[str, dict[str, Any]],
        files: int,
        theta: str | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        """Complete a checkpoint once all ranks have written their files.

        All checkpoints but the last two are removed.

        Args:
            rounds: after which it was written.
            state: how far the run has come.
            run: its fingerprint. Only a run with the same one can resume from the checkpoint.
            files: how many files the ranks have written.
            theta: the id of Θ's files, if Θ is on disk.
            folders: of these files.
        """
        checkpoint = self.folder_of(rounds)
        names = sorted(path.name for path in checkpoint.glob("*.safetensors"))
        if len(names) != files:
            raise InputError(
                f"the checkpoint {checkpoint} has the files of {len(names)} ranks, expected "
                f"{files}: put it where all machines see the same files"
            )
        relative_folders = [os.path.relpath(folder, self.folder) for folder in folders]
        write_json(checkpoint / _STATE, _Manifest(names, state, run, theta, relative_folders))
        for old in self.complete_folders()[:-KEPT]:
            _remove(old)

    def remove_torn(self) -> None:
        """Remove incomplete checkpoints, which a killed process left."""
        for path in self._all_folders() - set(self.complete_folders()):
            _remove(path)

    def remove(self) -> None:
        """Remove all checkpoints, those of narrow models too.

        The folder is removed if nothing else is in it.
        """
        for path in sorted(self._all_folders()):
            _remove(path)
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        for path in sorted(folders):
            if re.fullmatch(NARROW, path.name) and path.is_dir() and not path.is_symlink():
                Checkpoints(path).remove()
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Checkpoint:
    """A checkpoint opened for resuming.

    Args:
        folder: of the checkpoint.
        run: the fingerprint of the run that resumes.
        share: which files this process checks: its number, and how many processes there are.

    Attributes:
        shapes: of the whole tensors, by name.
        theta: see `Checkpoints.complete`.
        folders: see `Checkpoints.complete`.

    Raises:
        InputError: the folder is missing, damaged, or of another run. It names what differs.
    """

    def __init__(
        self, folder: Path, run: dict[str, dict[str, Any]], share: tuple[int, int] = (0, 1)
    ) -> None:
        self._folder = folder
        if not folder.is_dir():
            raise InputError(
                f"there is no {folder} to resume from: put it where all machines see the same files"
            )
        manifest = read_json(folder / _STATE, _Manifest, self._advice)
        if manifest.version != VERSION:
            advice = "go on with the gistgnn that made it, or start again in another directory"
            raise InputError(
                f"{folder} has the form {manifest.version}, and this gistgnn reads {VERSION}: "
                f"{advice}"
            )
        require_same_run(folder, manifest.run, run)
        self._state = manifest.state
        self.theta = manifest.theta
        files = sorted(manifest.files)
        self.folders = [
            Path(os.path.normpath(folder.parent.absolute() / name)) for name in manifest.folders
        ]
        for name in files[share[0] :: share[1]]:
            check_digest(
                folder / name, name.removesuffix(".safetensors").rpartition("-")[2], self._advice
            )
        self.shapes = dict[str, torch.Size]()
        self._pieces = dict[str, list[tuple[int, Tensor]]]()  # with their first rows, in order
        for path in (folder / name for name in files):
            # A file that another rank checks may be damaged.
            with reading(path, self._advice), safe_open(path, "pt") as file:
                for name, (first, shape) in json.loads(file.metadata()["rows"]).items():
                    self.add(name, Part(file.get_tensor(name), torch.Size(shape), first))

    def add(self, name: str, part: Part) -> None:
        """Add rows of a tensor, after those before them."""
        self.shapes[name] = part.shape
        self._pieces.setdefault(name, []).append((part.first, part.tensor))

    def state_as(self, kind: type[T]) -> T:
        """Return the state of the run.

        Args:
            kind: of the state: a dataclass, or a dictionary.

        Raises:
            InputError: the state has other entries, or entries of other types. None is left out in
                silence.
        """
        if is_dataclass(kind):
            unknown = sorted(self._state.keys() - {entry.name for entry in fields(kind)})
            if unknown:
                why = f"it has {unknown[0]}, which this gistgnn does not know"
                raise InputError(f"{self._folder} cannot be used ({why}); {self._advice}")
        try:
            return msgspec.convert(self._state, kind)
        except msgspec.ValidationError as error:
            raise InputError(
                f"{self._folder} cannot be used ({reason(error)}); {self._advice}"
            ) from error

    def tensor(self, name: str) -> Tensor:
        pieces = self._pieces[name]
        return pieces[0][1] if len(pieces) == 1 else self.rows(name, 0, self.shapes[name][0])

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        return torch.cat(
            [
                rows[max(start - first, 0) : max(stop - first, 0)]
                for first, rows in self._pieces[name]
            ]
        )

    @property
    def _advice(self) -> str:
        complete = Checkpoints(self._folder.parent).complete_folders()
        earlier = [folder for folder in complete if folder < self._folder]
        what_follows = f"resume from {earlier[-1].name}" if earlier else "start again"
        return f"delete {self._folder} to {what_follows}"


def require_same_run(
    path: Path,
    saved: Mapping[str, Mapping[str, Any]],
    current: Mapping[str, Mapping[str, Any]],
    advice: str = "use the same settings, model and graph, or another output directory",
) -> None:
    """Refuse to go on with another run.

    The InputError names the first entry of the fingerprints that differs.
    """
    for part in current:
        old = saved.get(part, {})
        new = current[part]
        for name in (*new, *(name for name in old if name not in new)):
            if (before := old.get(name)) == (now := new.get(name)):
                continue
            values = f"{name} was {before!r}, now {now!r}"
            if is_digest(before) or is_digest(now):
                values = f"{name} differ"
            raise InputError(f"{path} is of another run: {values}; {advice}")


def _remove(folder: Path) -> None:
    """Remove a checkpoint; without its state it is incomplete at once."""
    remove_files(folder, _STATE, "rank-?????-*.safetensors")
