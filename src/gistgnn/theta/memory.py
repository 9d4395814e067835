"""What a rank holds of Θ, in memory. Other places are subclasses of `InMemory`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from gistgnn.distributed import World
from gistgnn.errors import GistError
from gistgnn.partition import Blocks
from gistgnn.storage.tensors import LargeTensorsInFiles, assign
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import (
    BEST,
    MOMENTS,
    THETA,
    ByKey,
    Slices,
    Trained,
    fill,
    gather,
    is_counter,
    name_of,
    values_by_key,
)
from gistgnn.utils.interrupts import do_to_the_end


class InMemory:
    """A rank's rows of Θ, of its moments and of the best Θ, in memory on one device.

    `Slices` say which rows these are. A subclass holds them elsewhere: it is a file of its own, and
    an entry in `gistgnn.theta.registry`.

    Attributes:
        tensors: rows of parameters and buffers, by name; those given are held, not copied.
        moments: rows of carried moments, and the counts of steps, by key.
        best: rows of the best Θ, by name, if they are in memory.
        round: the next round's number t.
        loss: the mean loss of the last round.
        written: whether the round that was begun last is in Θ.
        writer_of: for every rank the one that writes its copy of Θ, where all ranks hold all of it.
        streams: whether a round holds one sub-GCN at a time, not all of them.
        is_durable: whether Θ is on disk after every round. The state of the run is then saved
            after every round as well.
        files_id: of the files, by which a checkpoint knows them. None if there are no files.
        folders: of the files of all ranks.
        failure: of `buffer` in the open round, which the ranks tell each other at its end.
    """

    is_durable = False
    files_id: str | None = None
    folders: Sequence[Path] = ()
    failure: GistError | None = None

    def __init__(
        self,
        slices: Slices,
        tensors: Mapping[str, Tensor],
        *,
        streams: bool = False,
        writer_of: Sequence[int] = (0,),
    ) -> None:
        self.slices = slices
        self.streams = streams
        self.writer_of = list(writer_of)
        self.tensors = dict(tensors)
        self.moments = dict[str, Tensor]()
        self.best = dict[str, Tensor]()
        self.round = 0
        self.loss = 0.0
        self.written = False
        self._members: Sequence[int] = ()
        # Slices that were gathered together with another one: by key, and by sub-GCN.
        self._waiting: dict[str, dict[int, Tensor]] = {}

    @classmethod
    def make(
        cls, store: Store, spec: ModelSpec, slices: Slices, ranks: World, *, replace: bool = False
    ) -> "InMemory":
        """Hold the model's initial values.

        With `replace` they take the place of an older Θ in the store's folder.
        """
        device = spec.device if store.place.holds == "device" else torch.device("cpu")
        # Without a copy, Θ would share memory with the caller, or with rows of other ranks.
        copy = spec.init is not None or slices.share.total > 1
        with LargeTensorsInFiles() if slices.share.total > 1 else nullcontext():
            values = spec.initial_tensors().items()
            tensors = {
                name: slices.rank_rows(name, value).to(device, copy=copy) for name, value in values
            }
        return cls(slices, tensors, streams=store.place.streams, writer_of=range(ranks.count))

    @classmethod
    def reopen(cls, store: Store, slices: Slices, ranks: World) -> "InMemory | None":
        """Hold what an earlier process has left; return None if there is nothing.

        Files of another model are an InputError.
        """
        return None

    @property
    def device(self) -> torch.device:
        """Where slices arrive, and trained ones wait."""
        return next(iter(self.tensors.values())).device

    def begin(self, members: Sequence[int] = ()) -> None:
        """Forget what is held of a round that was open.

        `members` are the sub-GCNs whose slices will be asked for.
        """
        self.written = False
        self._members = members
        self._waiting = {}

    def buffer(
        self, name: str, tensors: Trained, blocks: Blocks | None = None, *, reused: bool = False
    ) -> Trained:
        """Return tensors by key that stay as they are until the round is over.

        Args:
            name: of the file, where tensors are buffered in files.
            tensors: by key.
            blocks: of the trained sub-GCN of which these are this rank's rows. `write` writes them
                into Θ. By default they are no trained sub-GCN's.
            reused: the memory of the tensors is used again, so they are copied.
        """
        if not reused:
            return tensors
        return {
            key: value.to(self.tensors[name_of(key)].device, copy=True)
            for key, value in tensors.items()
        }

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """This rank's rows of the slice of sub-GCN i, by name.

        A tensor that the slice has whole is a view.
        """
        return {
            name: self._gather_slice(i, f"{THETA}{name}", tensor)[0]
            for name, tensor in self.tensors.items()
        }

    def moments_of(self, i: int) -> dict[str, Tensor]:
        """A copy of this rank's rows of the moments of sub-GCN i's slice, by key."""
        moments = {}
        for key, value in self.moments.items():
            name = name_of(key)
            if is_counter(key, value.shape, self.tensors[name].shape):
                moments[key] = value.clone()
                continue
            state, is_copy = self._gather_slice(i, key, value)
            moments[key] = state if is_copy else state.clone()
        return moments

    def _gather_slice(self, i: int, key: str, tensor: Tensor) -> tuple[Tensor, bool]:
        """This rank's rows of a tensor's slice, and whether they are a copy that nobody else has.

        On a GPU the slices of all members are taken at once, and the others wait until they are
        asked for.
        """
        name = name_of(key)
        if i in self._waiting.get(key, ()):
            return self._waiting[key].pop(i), True
        if key not in self._waiting and i in self._members:
            stacks = self.slices.stacks(self._members, tensor.device)
            if stacks is not None and stacks.has(name):
                slices = stacks.gather(name, tensor).unbind()
                self._waiting[key] = dict(zip(self._members, slices, strict=True))
                return self._waiting[key].pop(i), True
        return gather(tensor, self.slices.rank_cuts[i][name]), False

    def target(self, key: str) -> Tensor:
        """What this rank holds of a tensor, or of a moment that is carried already."""
        return self.tensors[name_of(key)] if key.startswith(THETA) else self.moments[key]

    def write(self, number: int, loss: float, trained: Mapping[int, Trained]) -> None:
        """Write round `number` into Θ (subAgg), whole or not at all.

        Entries that several sub-GCNs hold are averaged.

        First all new values are computed, which changes nothing. What is written then are final
        values, so a round that is interrupted there is finished. This takes room for the tensors
        that several sub-GCNs hold together.
        """
        write_values = self._prepare_write(trained)

        def write_round() -> None:
            write_values()
            self.round = number + 1
            self.loss = loss
            self.written = True

        do_to_the_end(write_round)

    def _prepare_write(self, trained: Mapping[int, Trained]) -> Callable[[], None]:
        """Compute the values that Θ and its moments have after the round.

        Returns the function that writes them.
        """
        slices = self.slices
        values, counts = values_by_key(
            [trained[i] for i in range(len(slices.blocks))], slices.specs
        )
        new_moments = {
            key: torch.zeros_like(self.tensors[name_of(key)])
            for key in values
            if key.startswith(MOMENTS) and key not in self.moments
        }
        targets = {
            key: new_moments[key] if key in new_moments else self.target(key) for key in values
        }
        means = self.means(targets, values)
        moments = self.moments | counts | new_moments

        def write() -> None:
            self.write_values(targets, values, means)
            self.moments = moments

        return write

    def means(self, targets: Mapping[str, Tensor], values: ByKey) -> dict[str, Tensor]:
        """The new values of the tensors of which several sub-GCNs hold the same entries, by key."""
        return {
            key: self.slices.mean(name_of(key), targets[key], values[key])
            for key in values
            if not self.slices.disjoint(name_of(key))
        }

    def write_values(
        self, targets: Mapping[str, Tensor], values: ByKey, means: Mapping[str, Tensor]
    ) -> None:
        """Write the values of the round's sub-GCNs, or their means.

        Doing so twice leaves the same.
        """
        for key, target in targets.items():
            if key in means:
                target.copy_(means[key])
            else:
                self.slices.write(name_of(key), target, values[key])

    def forget_moments(self) -> None:
        """Drop all moments: those of the next round's sub-GCNs begin anew."""
        self.moments = {}

    def keep_best(self) -> None:
        """Keep a copy of Θ as the best one, in the memory of the last one."""
        if not self.best:
            self.best = {name: tensor.clone() for name, tensor in self.tensors.items()}
            return

        def copy() -> None:
            for name, tensor in self.tensors.items():
                self.best[name].copy_(tensor)

        do_to_the_end(copy)

    def values(self, *, best: bool) -> dict[str, Tensor]:
        """This rank's rows of Θ, or of the best Θ if there is one."""
        return self.best if best and self.best else self.tensors

    def fill(
        self,
        keys: Mapping[str, torch.Size],
        saved: Callable[[str], Tensor],
        rounds: int,
        loss: float,
    ) -> None:
        """Hold what a checkpoint has after some rounds.

        `keys` has the whole shapes by key; `saved` returns this rank's rows of a key.
        """
        self.round = rounds
        self.loss = loss
        for key in keys:
            name = name_of(key)
            value = saved(key)
            if key.startswith(THETA):
                self.tensors[name].copy_(value)
                continue
            # torch's optimisers count their steps on the host.
            value = value.to("cpu" if key.endswith("/step") else self.device, copy=True)
            if key.startswith(BEST):
                self.best[name] = value
            else:
                self.moments[key] = value

    def all_tensors(self) -> dict[str, Tensor]:
        """All that this rank holds, by key, not copied."""
        tensors = {f"{THETA}{name}": tensor for name, tensor in self.tensors.items()} | self.moments
        return tensors | {f"{BEST}{name}": tensor for name, tensor in self.best.items()}

    def model(self, spec: ModelSpec, *, best: bool) -> nn.Module:
        """A new full model with a copy of the values; see `Theta.full_model`."""
        return self._fill_module(spec.construct().to(self.device), best=best)

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model with a copy of the values.

        Where they are on the host, the model has large values themselves.
        """
        if self.streams:
            return assign(spec.on_meta(), self.tensors, "Θ").to(spec.device)
        if module is None:
            return self.model(spec, best=False)
        return self._fill_module(module, best=False)

    def _fill_module(self, module: nn.Module, *, best: bool) -> nn.Module:
        fill(module, self.values(best=best))
        return module.eval()

    def replace_older(self) -> None:
        """Move files that were made beside those of an older Θ to their place."""

    def discard(self) -> None:
        """Remove the files that were made for this Θ, which no round has changed."""
