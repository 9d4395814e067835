"""Named tensors in a folder of safetensors files, and the checksums of their rows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.io.tensors import Place, shards_of
from gistgnn.theta.disk.row_checksums import load_checksums, save_checksums
from gistgnn.theta.disk.tensor_file import START_AGAIN, EditableFile, sync, unwritable
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Cut
from gistgnn.utils.formats import size

_CHECKSUMS = ".checksums"


class EditableFolder:
    """The tensors of all files of a folder, read and written in place; see `EditableFile`.

    The checksums of all rows are in memory. `save` writes them into a file of their own, whose name says how often Θ
    has been written. So the checksums from before are there until the new state of Θ is known.

    Args:
        folder: where the files are.
        run: the id of the run.
        files: those that belong to the folder, opened.

    Attributes:
        file_of: the file of every tensor, by name.
        specs: the shape and type of every tensor.
    """

    def __init__(self, folder: Path, run: str, files: Sequence[EditableFile]) -> None:
        self.folder, self._run, self._files = folder, run, list[EditableFile]()
        self.file_of, self.specs = dict[str, EditableFile](), dict[str, TensorSpec]()
        for file in files:
            self._add(file)

    def _add(self, file: EditableFile) -> None:
        self._files.append(file)
        self.file_of.update(dict.fromkeys(file.specs, file))
        self.specs.update(file.specs)

    @classmethod
    def open(cls, folder: Path, run: str, written: int, digest: str) -> EditableFolder:
        """Open the files for which checksums have been saved; others are left by a killed process, and ignored.

        Args:
            folder: where the files are.
            run: the id of the run.
            written: how often Θ had been written when the checksums were saved.
            digest: what `save` returned.

        Raises:
            InputError: a file is missing, damaged, or of another run or round.
        """
        found = load_checksums(_checksums(folder, written), START_AGAIN, digest=digest, run=run)
        return cls(folder, run, [EditableFile(folder / name, own) for name, own in sorted(found.items())])

    @classmethod
    def create(cls, folder: Path, specs: Mapping[str, TensorSpec], run: str) -> EditableFolder:
        """Make a folder of zeros, which take no room on the disk until they are overwritten."""
        try:
            shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
            folder.mkdir(parents=True)
        except OSError as error:
            raise unwritable(folder, error) from error
        made = cls(folder, run, [])
        made.extend(specs)
        return made

    def extend(self, specs: Mapping[str, TensorSpec]) -> None:
        """Add tensors of zeros."""
        _require_free(self.folder, sum(spec.nbytes for spec in specs.values()))
        for names in shards_of({name: spec.nbytes for name, spec in specs.items()}):
            path = self.folder / f"{len(self._files) + 1:05}.safetensors"
            path.unlink(missing_ok=True)  # left by a killed process
            self._add(EditableFile.create(path, {name: specs[name] for name in names}, self._run))

    @property
    def places(self) -> dict[str, Place]:
        """Where every tensor lies."""
        return {name: place for file in self._files for name, place in file.places.items()}

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [file.path for file in self._files]

    def readers(self) -> dict[Path, EditableFile]:
        """Open the files once more, to read only. The checksums are the same objects, so they follow Θ."""
        return {file.path: EditableFile(file.path, file.checksums, "rb") for file in self._files}

    def slice(self, name: str, cut: Cut | None = None) -> Tensor:
        """The cut's entries of a tensor; None: all of them."""
        return self.file_of[name].slice(name, cut)

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        for file in self._files:
            file.sync()

    def sum_up(self) -> None:
        """Compute the checksums of all rows from the files."""
        for file in self._files:
            file.sum_up()

    def save(self, written: int) -> str:
        """Write the checksums, and return the digest of their file.

        Args:
            written: how often Θ has been written by now.
        """
        checksums = {file.path.name: file.checksums for file in self._files}
        return save_checksums(_checksums(self.folder, written), checksums, self._run)

    def forget_before(self, written: int) -> None:
        """Remove the checksums of earlier states."""
        for path in self.folder.glob(f"*{_CHECKSUMS}"):
            if path != _checksums(self.folder, written):
                path.unlink(missing_ok=True)

    def copy(self, folder: Path, written: int) -> None:
        """Copy the files with their checksums into a new folder, which appears when all of them are on disk."""
        temporary = folder.with_name(folder.name + ".tmp")
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            for path in (*self.paths, _checksums(self.folder, written)):
                shutil.copyfile(path, temporary / path.name)
                sync(temporary / path.name)
            sync(temporary)
            temporary.rename(folder)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise unwritable(folder, error) from error

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _checksums(folder: Path, written: int) -> Path:
    return folder / f"{written:08}{_CHECKSUMS}"


def _require_free(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{folder} needs {size(needed)}, and its disk has {size(free)} left: make room, or choose another disk"
        )
