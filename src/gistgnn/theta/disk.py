"""Θ in files: a run holds no more of it in memory than the slices that it works on."""

import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn

from gistgnn.distributed import World
from gistgnn.errors import InputError
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import LargeTensorsInFiles, allocate, assign, map_tensors, read_tensors, write_tensors
from gistgnn.storage.whole_files import remove_files, remove_leftovers, replacing, sync, writing
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import ModelSpec, check_shapes
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import MOMENTS, Trained, merge_shared, name_of, values_by_key

PARAMETERS, BEST, STATE, ROUND = "parameters.safetensors", "best.safetensors", "theta.json", "round"
_SHARED, _BLOCKS = "shared.safetensors", "blocks/"
_START_AGAIN = "this Θ cannot be used: start the run again"
_RESUME = "make room, or choose another disk; the state before is kept, and the run can be resumed from it"


class State(msgspec.Struct):
    """What theta.json holds."""

    run: str  # the id of these files
    round: int = 0  # how many rounds are over
    loss: float = 0.0  # of the last one
    pending: bool = False  # the last round is in its files, and may not be in Θ
    counters: dict[str, float] = {}  # the step counts of the moments, by key
    moments: list[str] = []  # the names of the files of the moments
    version: Literal[3] = 3  # of this form


# The trained sub-GCNs of a round are written into files of their own. theta.json says that the round is over: this
# commits it. Then the values are copied into Θ. A process that is killed before the commit leaves Θ as it was; after
# one that is killed later, they are copied again when Θ is next opened. So a round is in Θ whole or not.
class OnDisk(InMemory):
    """Θ in safetensors files that are mapped into memory. A damaged folder, or another model's, is an InputError."""

    lasts = True

    def __init__(self, spec: ModelSpec, folder: Path) -> None:
        self.folder, self._lock = folder, FolderLock(folder, beside=True)
        self._state = read_json(folder / STATE, State, _START_AGAIN)
        super().__init__(spec.layout, spec.widths, self._map(PARAMETERS), streams=True)
        advice = "it is of another model; give it another folder"
        check_shapes(self.specs, spec.tensor_specs(), f"{folder}", "this model", advice)
        self.moments = {key: value for name in self._state.moments for key, value in self._map(name).items()}
        if other := [key for key in self.moments if not key.startswith(MOMENTS) or name_of(key) not in self.specs]:
            raise InputError(f"{folder} has moments of '{other[0]}', which this model has not; {_START_AGAIN}")
        self.files_id = self._state.run
        if self._state.pending:
            self._write_round()
        self._take_state()
        self._remove_leftovers()

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> "OnDisk":
        folder = store.folder
        assert folder is not None
        with FolderLock(folder, beside=True):
            if not replace and folder.exists() and any(folder.iterdir()):
                raise InputError(f"{folder} is not empty: resume from the Θ in it, remove it, or choose another folder")
            write_new(folder, spec, half=store.precision == "bf16")
            return cls(spec, folder)

    @classmethod
    def reopen(cls, store: Store, spec: ModelSpec) -> "OnDisk":
        assert store.folder is not None
        if not store.folder.exists():
            raise InputError(f"there is no Θ to resume in {store.folder}: give the folder of an earlier run")
        return cls(spec, store.folder)

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        if self._state.pending:  # writing it has failed
            self._write_round()
        with writing(self.folder / ROUND, _RESUME) as place:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        return super().begin(number, blocks)

    def forget_moments(self) -> None:
        super().forget_moments()
        if files := self._state.moments:
            self._change_state(counters={}, moments=[])  # first: a kill in the middle of the removal leaves no half
            for name in files:
                (self.folder / name).unlink(missing_ok=True)

    def keep(self, i: int, trained: Trained) -> None:
        """Write a trained sub-GCN into a file of the round."""
        blocks = {f"{_BLOCKS}{axis}": own for axis, own in enumerate(self._blocks[i])}
        self._write_file(f"{i:05}.safetensors", {**trained, **blocks})

    def keep_best(self) -> None:
        with replacing(self.folder / BEST) as path:
            shutil.copyfile(self.folder / PARAMETERS, path)

    def commit(self, loss: float) -> None:
        """Commit the round, then write it into Θ (subAgg)."""
        values, counts = values_by_key(self._read_round(), self.specs)
        counters = self._state.counters | {key: float(value) for key, value in counts.items()}
        known = dict(self.moments)
        try:
            files = [*self._state.moments, *self._make_moments(values)]
            shared = [key for key in values if not self.slices.disjoint(name_of(key), self._blocks)]
            self._write_file(_SHARED, {key: self._mean(key, values[key]) for key in shared})
            self._change_state(round=self.number + 1, loss=loss, pending=True, counters=counters, moments=files)
        except BaseException:
            self.moments = known  # theta.json does not name a new file of moments: it is made again
            raise
        del values
        self._write_round()

    def checkpoint(self) -> dict[str, Part]:
        """Nothing: Θ is in its files after every round."""
        return {}

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Check that Θ is the one after these rounds, or after one more: a kill may come before scores are saved."""
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
        self._lock.free()

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model, whose large weights are mapped: a change of them does not reach Θ."""
        path = self.folder / BEST
        path = path if best and path.exists() else self.folder / PARAMETERS
        return assign(spec.on_meta(), read_tensors(path, _START_AGAIN), str(path)).to(spec.device)

    def _write_round(self) -> None:
        """Copy the committed round into Θ. Doing so again gives the same Θ."""
        values, _ = values_by_key(self._read_round(), self.specs)
        shared = read_tensors(self.folder / ROUND / _SHARED, _START_AGAIN)
        for key, own in values.items():
            if key in shared:
                self._target(key).copy_(shared[key])
            else:
                self.slices.merge(name_of(key), self._blocks, self._target(key), self._cuts, own)
        with writing(self.folder, _RESUME) as folder:
            for name in (PARAMETERS, *self._state.moments):
                sync(folder / name)
        self._change_state(pending=False)
        self._take_state()
        shutil.rmtree(self.folder / ROUND, ignore_errors=True)

    def _take_state(self) -> None:
        self.round, self.loss = self._state.round, self._state.loss
        self.moments |= {key: torch.tensor(count) for key, count in self._state.counters.items()}

    def _read_round(self) -> list[Trained]:
        """Map the round's sub-GCNs, and set the blocks to theirs."""
        subs = [read_tensors(path, _START_AGAIN) for path in sorted((self.folder / ROUND).glob("?????.safetensors"))]
        axes = range(len(self.slices.features))
        self._open_blocks([tuple(sub.pop(f"{_BLOCKS}{axis}") for axis in axes) for sub in subs])
        return subs

    def _mean(self, key: str, values: Sequence[Tensor]) -> Tensor:
        """The new value of a tensor of which several sub-GCNs hold the same entries."""
        before = self._target(key)
        wide = before.float() if before.dtype == torch.bfloat16 else before.clone()
        merge_shared(wide, [cuts[name_of(key)] for cuts in self._cuts], values)
        return wide

    def _make_moments(self, keys: Iterable[str]) -> list[str]:
        """Make a file of zeros for the moments that are carried for the first time; return its name in a list."""
        new = [key for key in keys if key.startswith(MOMENTS) and key not in self.moments]
        if not new:
            return []
        name = f"moments-{len(self._state.moments)}.safetensors"
        with writing(self.folder / name, _RESUME) as path:
            path.unlink(missing_ok=True)  # left by a killed process
            allocate(path, {key: self.specs[name_of(key)] for key in new})
        self.moments |= self._map(name)
        return [name]

    def _map(self, name: str) -> dict[str, Tensor]:
        return read_tensors(self.folder / name, _START_AGAIN, shared=True)

    def _write_file(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        with writing(self.folder / ROUND / name, _RESUME) as path:
            try:
                write_tensors(path, tensors)
            except OSError:
                shutil.rmtree(path.parent, ignore_errors=True)  # frees room on the disk
                raise

    def _change_state(self, **changes: object) -> None:
        state = msgspec.structs.replace(self._state, **changes)
        write_json(self.folder / STATE, state)
        with writing(self.folder, _RESUME) as folder:
            sync(folder)
        self._state = state

    def _remove_leftovers(self) -> None:
        """Remove what a killed process was about to write."""
        shutil.rmtree(self.folder / ROUND, ignore_errors=True)
        for path in self.folder.glob("moments-*"):
            if path.name not in self._state.moments:
                path.unlink(missing_ok=True)
        remove_leftovers(self.folder)


def remove(folder: Path) -> None:
    """Remove the files of a Θ from a folder, and the folder if nothing else is in it."""
    remove_files(folder / ROUND, "?????.safetensors", _SHARED)
    remove_files(folder, STATE, PARAMETERS, BEST, "moments-*.safetensors")


def write_new(folder: Path, spec: ModelSpec, *, half: bool) -> None:
    """Write the model's initial values into a folder, in place of what is there; `half`: in bfloat16."""
    temporary = folder.with_name(folder.name + ".tmp")
    try:
        with writing(folder, _RESUME):
            remove(temporary)
            temporary.mkdir(parents=True)
            allocate(temporary / PARAMETERS, spec.tensor_specs(half=half))
            tensors = map_tensors(temporary / PARAMETERS)
            with LargeTensorsInFiles(temporary):
                for name, value in spec.initial_tensors().items():
                    tensors[name].copy_(value)
            sync(temporary / PARAMETERS)
            write_json(temporary / STATE, State(secrets.token_hex(16)))  # a run's settings may not be known yet
            remove(folder)
            temporary.rename(folder)
    finally:
        remove(temporary)
