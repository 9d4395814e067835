"""Θ in files: a run holds no more of it in memory than the slices that it works on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn

from gistgnn.distributed import World
from gistgnn.errors import InputError, reason
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.storage.folder_lock import FolderLock, locked
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import allocate, assign, map_tensors, read_tensors, write_tensors
from gistgnn.storage.whole_files import remove_leftovers, replacing, sync
from gistgnn.theta.disk_files import BEST, PARAMETERS, ROUND, STATE, State, check_shapes, unwritable, write_new
from gistgnn.theta.model_spec import ModelSpec, TensorSpec
from gistgnn.theta.slices import gather, gather_into, merge_shared, scatter
from gistgnn.theta.store import Store
from gistgnn.theta.theta import WholeTheta
from gistgnn.theta.trained import MOMENTS, THETA, Trained, is_counter, keyed, moment_of, name_of

_SHARED, _BLOCKS = "shared.safetensors", "blocks/"
_START_AGAIN = "this Θ cannot be used: start the run again"

_SubGCN = tuple[Mapping[str, Tensor], Blocks]  # its tensors by key (see `keyed`), and its blocks


class OnDisk(WholeTheta):
    """Θ in safetensors files that are mapped into memory.

    The trained sub-GCNs of a round are written into files of their own. Then theta.json says that the round is over:
    this commits it. Then the values are copied into Θ, which may be done twice. A process that is killed before the
    commit leaves Θ as it was before the round. After one that is killed later, the values are copied again when Θ is
    next opened. So a round is in Θ as a whole, or not at all.

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
        try:
            self._state = read_json(folder / STATE, State, _START_AGAIN)
        except FileNotFoundError as error:
            raise InputError(f"{folder / STATE} is missing; {_START_AGAIN}") from error
        self.files_id = self._state.run
        self._parameters = self._map(PARAMETERS)
        self._moments = {key: value for name in self._state.moments for key, value in self._map(name).items()}
        specs = {name: TensorSpec(tensor.shape, tensor.dtype) for name, tensor in self._parameters.items()}
        super().__init__(spec.layout, spec.widths, specs)
        check_shapes(folder, self.shapes, {name: own.shape for name, own in spec.tensor_specs().items()})
        if self._state.pending:
            self._write_round()
        self.round, self.loss = self._state.round, self._state.loss
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
        """The entries of a tensor in the blocks; a view where that is all of them."""
        return gather(self._parameters[name], self.slices.cut(name, blocks))

    def slice_into(self, target: Tensor, name: str, blocks: Blocks) -> None:
        """Copy the entries of a tensor in the blocks into another of their shape."""
        gather_into(target.detach(), self._parameters[name], self.slices.cut(name, blocks))

    def slice_moments(self, name: str, blocks: Blocks) -> dict[str, Tensor]:
        """The entries of a parameter's moments in the blocks, copied; a step count as it is."""
        cut = self.slices.cut(name, blocks)
        found = {moment_of(key): gather(own, cut).clone() for key, own in self._moments.items() if name_of(key) == name}
        counters = {key: value for key, value in self._state.counters.items() if name_of(key) == name}
        return found | {moment_of(key): torch.tensor(value) for key, value in counters.items()}

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t."""
        if self._state.pending:  # writing it has failed
            self._write_round()
        with self._writing(ROUND) as place:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        return super().begin(number, blocks)

    def forget_moments(self) -> None:
        """Remove the files of the moments."""
        files, self._moments = self._state.moments, {}
        if files:
            self._change_state(counters={}, moments=[])  # first: a kill in the middle of the removal leaves no half
            for name in files:
                (self.folder / name).unlink(missing_ok=True)

    def keep(self, i: int, trained: Trained) -> None:
        """Write a trained sub-GCN into a file of the round."""
        blocks = {f"{_BLOCKS}{j}": own for j, own in enumerate(self._blocks[i])}
        self._write(f"{i:05}.safetensors", {**keyed(trained.tensors, trained.moments), **blocks})

    def keep_best(self) -> None:
        """Copy Θ as the best one."""
        with replacing(self.folder / BEST) as path:
            shutil.copyfile(self.folder / PARAMETERS, path)

    def commit(self, loss: float) -> None:
        """Commit the round, then write it into Θ (subAgg)."""
        subs = self._sub_gcns()
        counters = self._counters(subs)
        keys = [key for key in _keys(subs) if key not in counters]
        moments = self._make_moments(keys)
        self._write(_SHARED, {key: self._mean(key, subs) for key in keys if self._is_shared(key, subs)})
        self._change_state(
            round=self._number + 1, loss=loss, pending=True, counters=counters, moments=[*self._state.moments, *moments]
        )
        del subs
        self._write_round()
        self._finish_round(loss)

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
        """Free the folder."""
        self._lock.free()

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model, whose large weights are mapped: a change of them does not reach Θ."""
        path = self.folder / BEST
        path = path if best and path.exists() else self.folder / PARAMETERS
        return assign(spec.on_meta(), read_tensors(path, _START_AGAIN), str(path)).to(spec.device)

    def _write_round(self) -> None:
        """Copy the committed round into Θ. Doing so again gives the same Θ."""
        subs, shared = self._sub_gcns(), read_tensors(self.folder / ROUND / _SHARED, _START_AGAIN)
        for key in _keys(subs):
            if key in self._state.counters:
                continue
            target, cuts = self._target(key), [self.slices.cut(name_of(key), blocks) for _, blocks in subs]
            if key in shared:
                target.copy_(shared[key])
                continue
            for (tensors, _), cut in zip(subs, cuts, strict=True):
                scatter(target, cut, tensors[key] if key in tensors else torch.zeros(()))
        with self._writing("") as folder:
            for name in (PARAMETERS, *self._state.moments):
                sync(folder / name)
        self._change_state(pending=False)
        self.round, self.loss = self._state.round, self._state.loss
        shutil.rmtree(self.folder / ROUND, ignore_errors=True)

    def _sub_gcns(self) -> list[_SubGCN]:
        """The tensors and blocks of the round's sub-GCNs, mapped."""
        found: list[_SubGCN] = []
        for path in sorted((self.folder / ROUND).glob("?????.safetensors")):
            tensors = read_tensors(path, _START_AGAIN)
            axes = sum(key.startswith(_BLOCKS) for key in tensors)
            found.append((tensors, tuple(tensors.pop(f"{_BLOCKS}{j}") for j in range(axes))))
        return found

    def _counters(self, subs: Sequence[_SubGCN]) -> dict[str, float]:
        """The largest step count of each parameter, by key."""
        return {
            key: max(float(tensors[key]) for tensors, _ in subs if key in tensors)
            for key in _keys(subs)
            if key.startswith(MOMENTS)
            and is_counter(
                moment_of(key), next(t[key].shape for t, _ in subs if key in t), self.specs[name_of(key)].shape
            )
        }

    def _is_shared(self, key: str, subs: Sequence[_SubGCN]) -> bool:
        """Whether several sub-GCNs hold the same entry, or the tensor is boolean."""
        return self._target(key).dtype == torch.bool or not self.slices.disjoint(name_of(key), [b for _, b in subs])

    def _mean(self, key: str, subs: Sequence[_SubGCN]) -> Tensor:
        """The new value of a tensor of which several sub-GCNs hold the same entries.

        An optimiser without a state counts as one whose moments are zero.
        """
        before = self._target(key)
        wide = before.float() if before.dtype == torch.bfloat16 else before.clone()
        cuts = [self.slices.cut(name_of(key), blocks) for _, blocks in subs]
        values = [
            tensors[key] if key in tensors else torch.zeros_like(gather(wide, cut))
            for (tensors, _), cut in zip(subs, cuts, strict=True)
        ]
        merge_shared(wide, cuts, values)
        return wide

    def _make_moments(self, keys: Sequence[str]) -> list[str]:
        """Make a file of zeros for the moments that are carried for the first time; return its name in a list."""
        new = {key: self.specs[name_of(key)] for key in keys if key.startswith(MOMENTS) and key not in self._moments}
        if not new:
            return []
        name = f"moments-{len(self._state.moments)}.safetensors"
        with self._writing(name) as path:
            path.unlink(missing_ok=True)  # left by a killed process
            allocate(path, new)
        self._moments |= self._map(name)
        return [name]

    def _target(self, key: str) -> Tensor:
        return self._parameters[name_of(key)] if key.startswith(THETA) else self._moments[key]

    def _map(self, name: str) -> dict[str, Tensor]:
        path = self.folder / name
        try:
            return map_tensors(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise InputError(f"{path} is damaged, or missing ({reason(error)}); {_START_AGAIN}") from error

    def _write(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a file of the round."""
        with self._writing(f"{ROUND}/{name}") as path:
            try:
                write_tensors(path, tensors)
            except OSError:
                shutil.rmtree(path.parent, ignore_errors=True)  # frees room on the disk
                raise

    @contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        try:
            yield self.folder / name
        except OSError as error:
            raise unwritable(self.folder / name, error) from error

    def _change_state(self, **changes: object) -> None:
        state = msgspec.structs.replace(self._state, **changes)
        write_json(self.folder / STATE, state)
        with self._writing("") as folder:
            sync(folder)
        self._state = state

    def _remove_leftovers(self) -> None:
        """Remove what a killed process was about to write."""
        shutil.rmtree(self.folder / ROUND, ignore_errors=True)
        for path in self.folder.glob("moments-*"):
            if path.name not in self._state.moments:
                path.unlink(missing_ok=True)
        remove_leftovers(self.folder)


def _keys(subs: Sequence[_SubGCN]) -> list[str]:
    return list(dict.fromkeys(key for tensors, _ in subs for key in tensors))
