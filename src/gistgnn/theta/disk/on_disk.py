"""Θ in files: a run holds no more of it in memory than the slices that it works on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.checkpoint import Checkpoint, Part
from gistgnn.distributed import World
from gistgnn.errors import InputError
from gistgnn.io.folder_lock import FolderLock, locked
from gistgnn.io.stored_model import stored_model
from gistgnn.io.whole_files import remove_leftovers
from gistgnn.partition import Blocks
from gistgnn.theta.disk.journal import Journal
from gistgnn.theta.disk.merge import Merge
from gistgnn.theta.disk.new_files import write_new
from gistgnn.theta.disk.state import MOMENT_FILES, PARAMETERS, STATE, check_shapes, read_state, write_state
from gistgnn.theta.disk.tensor_file import Rows
from gistgnn.theta.disk.tensor_folder import EditableFolder
from gistgnn.theta.keys import MOMENTS, THETA, keyed, moment_of, name_of
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.slices import Cut
from gistgnn.theta.store import Store
from gistgnn.theta.trained import Trained
from gistgnn.theta.whole_theta import WholeTheta

_ROUND = "round"


class OnDisk(WholeTheta):
    """Θ in safetensors files, which are read and written in place, whole rows at a time in the order of the file.

    A round is written in two steps. First the trained sub-GCNs go into a journal, which a rename commits. Then the
    journal is written into Θ. A process that is killed before the rename leaves Θ as it was before the round. A process
    that is killed after it leaves a journal, which is written into Θ when Θ is next opened. So a round is in Θ as a
    whole, or not at all.

    The best Θ is a copy, made just before Θ changes.

    Args:
        spec: the model.
        folder: made by `make`.

    Raises:
        InputError: the folder is of another model, or damaged; or the disk is full. Methods raise it, too.
    """

    streams = True
    lasts = True

    def __init__(self, spec: ModelSpec, folder: Path) -> None:
        self.folder, self._lock = folder, FolderLock(folder, beside=True)
        self._state = read_state(folder / STATE)
        self.files_id = self._run = self._state["run"]
        self._journal = Journal(folder / _ROUND, self._run)
        self._parameters = self._open(PARAMETERS)
        super().__init__(spec.layout, spec.widths, self._parameters.specs)
        self._moments = self._open(MOMENT_FILES) if self._state["moments"] else None
        check_shapes(folder, self.shapes, {name: own.shape for name, own in spec.tensor_specs().items()})
        self.round, self.loss = self._state["round"], self._state["loss"]
        if self._journal.folder.exists():
            self._redo()
        self._journal.remove()
        self._remove_leftovers()

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> OnDisk:
        """Make Θ with the model's initial values in the store's folder."""
        folder = store.folder
        assert folder is not None
        with locked(folder, beside=True):
            if not replace and folder.exists() and any(folder.iterdir()):
                raise InputError(f"{folder} is not empty: resume from the Θ in it, remove it, or choose another folder")
            write_new(folder, spec, half=store.precision == "bf16")
            return cls(spec, folder)

    @classmethod
    def reopen(cls, store: Store, spec: ModelSpec) -> OnDisk:
        """Open the Θ that an earlier process has left in the store's folder."""
        assert store.folder is not None
        if not store.folder.exists():
            raise InputError(f"there is no Θ to resume in {store.folder}: give the folder of an earlier run")
        return cls(spec, store.folder)

    def slice(self, name: str, blocks: Blocks) -> Tensor:
        """The entries of a tensor in the blocks."""
        return self._parameters.slice(name, self.slices.cut(name, blocks))

    def slice_moments(self, name: str, blocks: Blocks) -> dict[str, Tensor]:
        """The entries of a parameter's moments in the blocks; a step count as it is."""
        if self._moments is None:
            return {}
        cut = self.slices.cut(name, blocks)
        own = [key for key in self._moments.specs if key.rsplit("/", 1)[0] == name]
        found = {moment_of(key): self._moments.slice(key, cut) for key in own}
        counters = {key: value for key, value in self._state["counters"].items() if name_of(key) == name}
        return found | {moment_of(key): torch.tensor(value) for key, value in counters.items()}

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t."""
        self._journal.begin()
        return super().begin(number, blocks)

    def forget_moments(self) -> None:
        """Remove the files of the moments."""
        if not self._moments:
            return
        self._change_state(counters={}, moments=None)  # first: a kill in the middle of the removal leaves no half
        self._moments.close()
        self._moments = None
        shutil.rmtree(self.folder / MOMENT_FILES, ignore_errors=True)

    def keep(self, i: int, trained: Trained) -> None:
        """Write a trained sub-GCN into the journal."""
        self._journal.add(i, self._blocks[i], keyed(trained.tensors, trained.moments))

    def keep_best(self) -> None:
        """Remember that Θ as it stands is the best one."""
        self._change_state(best={name: self._state[name] for name in ("written", PARAMETERS)})

    def checkpoint(self) -> dict[str, Part]:
        """Nothing: Θ is in its files after every round."""
        return {}

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Check that Θ is the one after these rounds, or after one more.

        A run may be killed when Θ is written and its scores are not.

        Raises:
            InputError: Θ is of another run, or has been through another number of rounds.
        """
        if saved.theta != self.files_id:
            raise InputError(
                f"{self.folder} is of another run than the checkpoint beside it: put back the folder of this run, or "
                "start again"
            )
        if self.round not in (rounds, rounds + 1):
            raise InputError(
                f"{self.folder} has been through {self.round} rounds, the checkpoint beside it through {rounds}: "
                "they are not of the same run; start again"
            )

    def close(self) -> None:
        """Close the files, and free the folder."""
        self._lock.free()
        self._parameters.close()
        if self._moments:
            self._moments.close()

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model, which reads its large weights from the files when it runs."""
        files = self._best() if best else self._parameters
        return stored_model(spec.on_meta(), files.places, files=files.readers()).to(spec.device)

    def commit(self, loss: float) -> None:
        """Commit the journal, then write it into Θ (subAgg)."""
        with ExitStack() as stack:
            merge = self._merge(stack)
            shared = {}
            for key in merge.keys(self.shapes):
                files, name = self._place(key)
                if merge.is_shared(key, files.specs[name].dtype):
                    shared[key] = merge.mean(key, files.slice(name))
            note = {"round": self._number + 1, "loss": loss, "counters": merge.counters(self.shapes)}
            self._journal.commit(shared, {**note, "written": self._state["written"] + 1})
        self._write_round()

    def _redo(self) -> None:
        """Write a round into Θ that a killed process has committed."""
        ahead = self._journal.note()["written"] - self._state["written"]
        if ahead == 1:
            self._write_round(again=True)
        elif ahead:  # 0: it is in Θ, and only the journal was not removed
            raise InputError(f"{self._journal.folder} is of another round than {self.folder}: remove it")

    def _write_round(self, *, again: bool = False) -> None:
        """Write the journal into Θ. Doing so again from the beginning gives the same Θ.

        Args:
            again: some rows may have been written, so that they do not fit the checksums from before the round.
        """
        self._copy_best()
        with ExitStack() as stack:
            merge = self._merge(stack)
            shared = stack.enter_context(closing(self._journal.shared()))
            for key in merge.keys(self.shapes):
                files, name = self._place(key)
                shape = files.specs[name].shape
                whole: list[tuple[Cut, Rows]] = [((None,) * len(shape), partial(shared.rows, key))]
                parts = whole if key in shared.specs else merge.parts(key, shape)
                files.file_of[name].update(name, parts, checked=not again)
        self._save_round(self._journal.note())
        self._journal.remove()

    def _save_round(self, note: dict[str, Any]) -> None:
        """Write the checksums of the new Θ, and then the state that names them."""
        written, digests = note["written"], dict[str, str | None]()
        for name, files in ((PARAMETERS, self._parameters), (MOMENT_FILES, self._moments)):
            if files:
                files.sync()
            digests[name] = files.save(written) if files else None
        changes = {name: note[name] for name in ("round", "loss", "counters", "written")}
        self._change_state(**changes, **digests)
        self._parameters.forget_before(written)
        if self._moments:
            self._moments.forget_before(written)
        self.round, self.loss = note["round"], note["loss"]

    def _merge(self, stack: ExitStack) -> Merge:
        subs = self._journal.sub_gcns()
        for file, _ in subs:
            stack.enter_context(closing(file))
        merge = Merge(self.slices, subs)
        self._make_room_for_moments(merge)
        return merge

    def _make_room_for_moments(self, merge: Merge) -> None:
        """Make files of zeros for the moments that are carried for the first time."""
        parameters = self._parameters.specs
        known = self._moments.specs if self._moments else {}
        new = {
            key.removeprefix(MOMENTS): parameters[name_of(key)]
            for key in merge.keys(self.shapes)
            if key.startswith(MOMENTS) and key.removeprefix(MOMENTS) not in known
        }
        if new and self._moments:
            self._moments.extend(new)
        elif new:
            self._moments = EditableFolder.create(self.folder / MOMENT_FILES, new, self._run)

    def _place(self, key: str) -> tuple[EditableFolder, str]:
        if key.startswith(THETA):
            return self._parameters, name_of(key)
        assert self._moments is not None
        return self._moments, key.removeprefix(MOMENTS)

    def _open(self, name: str) -> EditableFolder:
        return EditableFolder.open(self.folder / name, self._run, self._state["written"], self._state[name])

    def _best(self) -> EditableFolder:
        """The files of the best Θ: those of Θ itself where Θ is the best, or no best Θ is kept yet."""
        best, kept = self._state["best"], self._best_folder
        if best is None or kept is None or best["written"] == self._state["written"]:
            return self._parameters
        return EditableFolder.open(kept, self._run, best["written"], best[PARAMETERS])

    @property
    def _best_folder(self) -> Path | None:
        best = self._state["best"]
        return None if best is None else self.folder / f"best-{best['written']}"

    def _copy_best(self) -> None:
        """Copy the best Θ before Θ changes, if it is Θ as it stands."""
        wanted, written = self._best_folder, self._state["written"]
        if wanted and self._state["best"]["written"] == written and not wanted.exists():
            self._parameters.copy(wanted, written)
            for older in self.folder.glob("best-*"):
                if older != wanted:
                    shutil.rmtree(older, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """Remove what a killed process was about to write: copies of the best Θ, moments, checksums, states."""
        if not self._moments:
            shutil.rmtree(self.folder / MOMENT_FILES, ignore_errors=True)
        for files in filter(None, (self._parameters, self._moments)):
            files.forget_before(self._state["written"])
        for path in self.folder.glob("*.tmp"):
            shutil.rmtree(path, ignore_errors=True)
        remove_leftovers(self.folder)

    def _change_state(self, **changes: Any) -> None:
        self._state |= changes
        write_state(self.folder / STATE, self._state)
