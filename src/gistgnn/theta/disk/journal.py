"""What the sub-GCNs of one round have become, on the disk until all of it is in Θ."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.partition import Blocks
from gistgnn.theta.disk.tensor_file import EditableFile, Spec, sync, unwritable

_SHARED = "shared.safetensors"  # the means of what several sub-GCNs hold
_SUB_GCN = "sub-gcn-"  # what the names of the sub-GCNs' files begin with
BLOCKS = "blocks/"  # and the keys of their blocks
_NOTE = "round.json"


class Journal:
    """A folder that is written as `NAME.tmp` and takes its name once all of it is on the disk.

    From then on the round belongs to Θ: whatever happens, it is written there, again if need be, and then removed. A
    folder with `.tmp` is of a round that did not come to its end, and counts for nothing.

    Args:
        folder: NAME.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._temporary = folder.with_name(folder.name + ".tmp")

    def begin(self) -> None:
        """Make an empty folder; what an earlier round left unfinished is removed.

        Raises:
            InputError: it cannot be made.
        """
        try:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir()
        except OSError as error:
            raise unwritable(self._temporary, error) from error

    def add(self, i: int, blocks: Blocks, tensors: Mapping[str, Tensor]) -> None:
        """Write the tensors of sub-GCN i, and the blocks that they belong to.

        Raises:
            InputError: there is no room.
        """
        self._save(
            f"{_SUB_GCN}{i:05}.safetensors", {**tensors, **{f"{BLOCKS}{j}": own for j, own in enumerate(blocks)}}
        )

    def commit(self, shared: Mapping[str, Tensor], note: dict[str, Any]) -> None:
        """Add the means of what several sub-GCNs hold, and a note, and give the folder its name.

        Raises:
            InputError: the disk does not take it.
        """
        self._save(_SHARED, shared)
        try:
            (self._temporary / _NOTE).write_text(json.dumps(note), encoding="ascii")
            sync(self._temporary / _NOTE)
            sync(self._temporary)
            self._temporary.rename(self.folder)
            sync(self.folder.parent)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def exists(self) -> bool:
        """Whether a round has been committed, and is still to be written into Θ."""
        return self.folder.exists()

    def note(self) -> dict[str, Any]:
        """The note of a round that has been committed."""
        note: dict[str, Any] = json.loads((self.folder / _NOTE).read_text(encoding="ascii"))
        return note

    def sub_gcns(self) -> list[tuple[EditableFile, Blocks]]:
        """The tensors and blocks of every sub-GCN; of a folder that is not committed yet as well."""
        folder = self.folder if self.folder.exists() else self._temporary
        found = []
        for path in sorted(folder.glob(f"{_SUB_GCN}*")):
            file = EditableFile(path)
            axes = sum(key.startswith(BLOCKS) for key in file.specs)
            found.append((file, tuple(file.slice(f"{BLOCKS}{j}") for j in range(axes))))
        return found

    def shared(self) -> EditableFile:
        """The means of what several sub-GCNs hold."""
        return EditableFile(self.folder / _SHARED)

    def remove(self) -> None:
        """Forget the round.

        Raises:
            InputError: the disk does not take it; the round is written into Θ once more when that is opened.
        """
        shutil.rmtree(self._temporary, ignore_errors=True)
        try:
            # Renamed first, so that a kill in the middle leaves no half of a round under its name.
            with suppress(FileNotFoundError):
                self.folder.rename(self._temporary)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        try:
            specs = {key: Spec(tensor.shape, tensor.dtype) for key, tensor in tensors.items()}
            with closing(EditableFile.create(self._temporary / name, specs)) as file:
                for key, tensor in tensors.items():
                    file.write_flat(key, 0, tensor.detach().cpu())
                file.sync()
        except InputError:
            shutil.rmtree(self._temporary, ignore_errors=True)  # room for whatever else is on the disk
            raise
