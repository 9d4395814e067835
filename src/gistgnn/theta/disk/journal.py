"""The trained sub-GCNs of one round, on disk until all of them are in Θ."""

import json
import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.partition import Blocks
from gistgnn.theta.disk.tensor_file import EditableFile, sync, unwritable
from gistgnn.theta.model_spec import TensorSpec

_SHARED = "shared.safetensors"  # tensors that several sub-GCNs hold: their means
_SUB_GCN = "sub-gcn-"  # begins the file name of a sub-GCN
BLOCKS = "blocks/"  # begins the key of its blocks
_NOTE = "round.json"


class Journal:
    """A folder that is written as `NAME.tmp`, and renamed to `NAME` once all of it is on disk.

    After the rename the round counts: it is written into Θ, again after a kill, and then removed. A folder `NAME.tmp`
    belongs to a round that has not ended, and is ignored. Methods raise an InputError if the disk does not take it.

    Args:
        folder: NAME.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._temporary = folder.with_name(folder.name + ".tmp")

    def begin(self) -> None:
        """Make an empty folder, in place of an unfinished one."""
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
        try:
            (self._temporary / _NOTE).write_text(json.dumps(note), encoding="ascii")
            sync(self._temporary / _NOTE)
            sync(self._temporary)
            self._temporary.rename(self.folder)
            sync(self.folder.parent)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def note(self) -> dict[str, Any]:
        """The note of the committed round."""
        note: dict[str, Any] = json.loads((self.folder / _NOTE).read_text(encoding="ascii"))
        return note

    def sub_gcns(self) -> list[tuple[EditableFile, Blocks]]:
        """The tensors and blocks of every sub-GCN, before or after the commit."""
        folder = self.folder if self.folder.exists() else self._temporary
        found = []
        for path in sorted(folder.glob(f"{_SUB_GCN}*")):
            file = EditableFile(path)
            axes = sum(key.startswith(BLOCKS) for key in file.specs)
            found.append((file, tuple(file.slice(f"{BLOCKS}{j}") for j in range(axes))))
        return found

    def shared(self) -> EditableFile:
        """The tensors that several sub-GCNs hold."""
        return EditableFile(self.folder / _SHARED)

    def remove(self) -> None:
        """Forget the round. If that fails, the round is written into Θ once more when Θ is next opened."""
        shutil.rmtree(self._temporary, ignore_errors=True)
        try:
            # Renamed first: a kill in the middle of the removal leaves no half of a round under this name.
            with suppress(FileNotFoundError):
                self.folder.rename(self._temporary)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        specs = {key: TensorSpec(tensor.shape, tensor.dtype) for key, tensor in tensors.items()}
        try:
            with closing(EditableFile.create(self._temporary / name, specs)) as file:
                for key, tensor in tensors.items():
                    file.write_flat(key, 0, tensor.detach().cpu())
                file.sync()
        except InputError:
            shutil.rmtree(self._temporary, ignore_errors=True)  # frees room on the disk
            raise
