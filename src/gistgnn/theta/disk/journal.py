"""The trained sub-GCNs of one round, on disk until all of them are in Θ."""

import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.io.records import Schema, read_record, write_record
from gistgnn.partition import Blocks
from gistgnn.theta.disk.row_checksums import Checksums, load_checksums, save_checksums
from gistgnn.theta.disk.tensor_file import EditableFile, sync, unwritable
from gistgnn.theta.model_spec import TensorSpec

_SHARED = "shared.safetensors"  # tensors that several sub-GCNs hold: their means
_SUB_GCN = "sub-gcn-"  # begins the file name of a sub-GCN
BLOCKS = "blocks/"  # begins the key of its blocks
_NOTE, _CHECKSUMS = "round.json", "checksums"
_VERSION = 1  # of the note
_SCHEMA: Schema = {
    "run": str,
    "checksums": str,  # the digest of their file
    "round": int,
    "written": int,  # how often Θ has been written when this round is in it
    "loss": (int, float),
    "counters": dict,
}


class Journal:
    """A folder that is written as `NAME.tmp`, and renamed to `NAME` once all of it is on disk.

    After the rename the round counts: it is written into Θ, again after a kill, and then removed. A folder `NAME.tmp`
    belongs to a round that has not ended, and is ignored. Methods raise an InputError if the disk does not take it.

    The checksums of its files are in memory, and on disk from the commit on.

    Args:
        folder: NAME.
        run: the id of the files of Θ.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self._run = folder, run
        self._temporary = folder.with_name(folder.name + ".tmp")
        self._checksums: dict[str, Checksums] = {}
        self._advice = f"remove {folder} to go on from the round before, if Θ is still as it was then"

    def begin(self) -> None:
        """Make an empty folder, in place of an unfinished one."""
        self._checksums = {}
        try:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir()
        except OSError as error:
            raise unwritable(self._temporary, error) from error

    def add(self, i: int, blocks: Blocks, tensors: Mapping[str, Tensor]) -> None:
        """Write the tensors and the blocks of sub-GCN i."""
        self._save(
            f"{_SUB_GCN}{i:05}.safetensors", {**tensors, **{f"{BLOCKS}{j}": own for j, own in enumerate(blocks)}}
        )

    def commit(self, shared: Mapping[str, Tensor], note: dict[str, Any]) -> None:
        """Add the tensors that several sub-GCNs hold, and a note; then rename the folder."""
        self._save(_SHARED, shared)
        digest = save_checksums(self._temporary / _CHECKSUMS, self._checksums, self._run)
        write_record(self._temporary / _NOTE, {**note, "run": self._run, "checksums": digest}, _VERSION)
        try:
            sync(self._temporary)
            self._temporary.rename(self.folder)
            sync(self.folder.parent)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def note(self) -> dict[str, Any]:
        """The note of the committed round. Raise InputError if it is damaged, or of another run."""
        try:
            note = read_record(self.folder / _NOTE, _VERSION, _SCHEMA, self._advice)
        except FileNotFoundError as error:
            raise InputError(f"{self.folder / _NOTE} is missing; {self._advice}") from error
        if note["run"] != self._run:
            raise InputError(f"{self.folder} is of another run; {self._advice}")
        return note

    def sub_gcns(self) -> list[tuple[EditableFile, Blocks]]:
        """The tensors and blocks of every sub-GCN, before or after the commit."""
        folder = self.folder if self.folder.exists() else self._temporary
        found = []
        for name in sorted(self._files()):
            if not name.startswith(_SUB_GCN):
                continue
            file = self._open(folder / name)
            axes = sum(key.startswith(BLOCKS) for key in file.specs)
            found.append((file, tuple(file.slice(f"{BLOCKS}{j}") for j in range(axes))))
        return found

    def shared(self) -> EditableFile:
        """The tensors that several sub-GCNs hold."""
        self._files()
        return self._open(self.folder / _SHARED)

    def remove(self) -> None:
        """Forget the round. If that fails, the round is written into Θ once more when Θ is next opened."""
        self._checksums = {}
        shutil.rmtree(self._temporary, ignore_errors=True)
        try:
            # Renamed first: a kill in the middle of the removal leaves no half of a round under this name.
            with suppress(FileNotFoundError):
                self.folder.rename(self._temporary)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _files(self) -> dict[str, Checksums]:
        """The checksums of the files; those of a round that another process has committed are read."""
        if not self._checksums:
            digest = self.note()["checksums"]
            path = self.folder / _CHECKSUMS
            self._checksums = load_checksums(path, self._advice, digest=digest, run=self._run)
        return self._checksums

    def _open(self, path: Path) -> EditableFile:
        return EditableFile(path, self._checksums[path.name], "rb", self._advice)

    def _save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        specs = {key: TensorSpec(tensor.shape, tensor.dtype) for key, tensor in tensors.items()}
        try:
            with closing(EditableFile.create(self._temporary / name, specs, self._run, self._advice)) as file:
                for key, tensor in tensors.items():
                    file.write(key, tensor)
                file.sync()
                self._checksums[name] = file.checksums
        except InputError:
            shutil.rmtree(self._temporary, ignore_errors=True)  # frees room on the disk
            raise
