"""Named tensors in a folder of safetensors files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.io.tensors import shards_of
from gistgnn.theta.disk.tensor_file import EditableFile, sync, unwritable
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Cut
from gistgnn.utils.formats import size

T = TypeVar("T")


class EditableFolder:
    """The tensors of all files of a folder, read and written in place; see `EditableFile`.

    Args:
        folder: where the files are.

    Attributes:
        file_of: the file of every tensor, by name.
        specs: the shape and type of every tensor.

    Raises:
        InputError: there are none, or one is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = [EditableFile(path) for path in sorted(folder.glob("*.safetensors"))]
        if not self._files:
            raise InputError(f"{folder} holds no tensors: it is damaged, or not of this run")
        self.file_of = {name: file for file in self._files for name in file.specs}
        self.specs = {name: file.specs[name] for name, file in self.file_of.items()}

    @classmethod
    def create(cls, folder: Path, specs: Mapping[str, TensorSpec]) -> EditableFolder:
        """Make a folder of zeros, which take no room on the disk until they are overwritten."""
        temporary = folder.with_name(folder.name + ".tmp")
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _require_free(temporary, sum(spec.nbytes for spec in specs.values()))
            for number, names in enumerate(shards_of({name: spec.nbytes for name, spec in specs.items()}), start=1):
                path = temporary / f"{number:05}.safetensors"
                EditableFile.create(path, {name: specs[name] for name in names}).close()
            temporary.rename(folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        return cls(folder)

    @classmethod
    def extend(cls, folder: Path, specs: Mapping[str, TensorSpec]) -> EditableFolder:
        """Add tensors of zeros to a folder, which is created if it is missing."""
        if not folder.exists():
            return cls.create(folder, specs)
        shutil.rmtree(folder / "more", ignore_errors=True)  # of a process that was killed
        with closing(cls.create(folder / "more", specs)) as more:
            for path in more.paths:
                number = len(list(folder.glob("*.safetensors"))) + 1
                path.rename(folder / f"{number:05}.safetensors")
        shutil.rmtree(folder / "more")
        return cls(folder)

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [file.path for file in self._files]

    def slice(self, name: str, cut: Cut | None = None) -> Tensor:
        """The cut's entries of a tensor; None: all of them."""
        return self.file_of[name].slice(name, cut)

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        for file in self._files:
            file.sync()

    def copy(self, folder: Path) -> None:
        """Copy the files into a new folder, which appears when all of them are on disk."""
        temporary = folder.with_name(folder.name + ".tmp")
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            for path in self.paths:
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


def _require_free(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{folder} needs {size(needed)}, and its disk has {size(free)} left: make room, or choose another disk"
        )
