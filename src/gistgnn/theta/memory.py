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
from gistgnn.theta.slices import BEST, THETA, Slices, Trained, fill, gather, is_counter, name_of, values_by_key


class InMemory:
    """A rank's rows of Θ, of its moments and of the best Θ, in memory on one device.

    `Slices` say which rows these are. A subclass holds them elsewhere: it is a file of its own, and an entry in
    `gistgnn.theta.registry`.

    Attributes:
        tensors: rows of parameters and buffers, by name; those given are held, not copied.
        moments: rows of carried moments, and the counts of steps, by key.
        round: the next round's number t; `loss` is the mean loss of the last one.
        homes: for every rank the one that writes its copy of Θ, where all ranks hold all of it.
        streams: a round holds one sub-GCN at a time; otherwise all of them.
        lasts: Θ is on disk after every round, so the rest of a run's state has to be saved then, too.
        files_id: of the files, by which a checkpoint knows them; `folders` are those of all ranks. None: no files.
        failure: of `hold` in the open round, which the ranks tell each other at its end.
    """

    lasts = False
    files_id: str | None = None
    folders: Sequence[Path] = ()
    failure: GistError | None = None

    def __init__(
        self, slices: Slices, tensors: Mapping[str, Tensor], *, streams: bool = False, homes: Sequence[int] = (0,)
    ) -> None:
        self.slices, self.streams, self.homes = slices, streams, list(homes)
        self.tensors, self.moments, self.best = dict(tensors), dict[str, Tensor](), dict[str, Tensor]()
        self.round, self.loss = 0, 0.0

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, slices: Slices, ranks: World, *, replace: bool = False) -> "InMemory":
        """Hold the model's initial values; `replace`: in place of an older Θ in the store's folder."""
        device = spec.device if store.place.holds == "device" else torch.device("cpu")
        copy = spec.init is not None or slices.share[1] > 1  # the caller keeps it, or it is a view of some rows
        with LargeTensorsInFiles() if slices.share[1] > 1 else nullcontext():
            values = spec.initial_tensors().items()
            tensors = {name: slices.own_rows(name, value).to(device, copy=copy) for name, value in values}
        return cls(slices, tensors, streams=store.place.streams, homes=range(ranks.count))

    @classmethod
    def reopen(cls, store: Store, slices: Slices, ranks: World) -> "InMemory | None":
        """Hold what an earlier process has left; None: nothing is there. Files of another model are an InputError."""
        return None

    @property
    def device(self) -> torch.device:
        """Where slices arrive, and trained ones wait."""
        return next(iter(self.tensors.values())).device

    def begin(self) -> None:
        """Forget what is held of a round that was open."""

    def hold(self, name: str, tensors: Trained, blocks: Blocks | None = None, *, reused: bool = False) -> Trained:
        """Hold some tensors by key until the round is over; `reused`: copy them, as their memory is used again.

        With `blocks`, they are this rank's rows of the trained sub-GCN of these blocks, which `write` writes.
        """
        if not reused:
            return tensors
        return {key: value.to(self.tensors[name_of(key)].device, copy=True) for key, value in tensors.items()}

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """This rank's rows of the slice of sub-GCN i, by name; a view where that is a whole tensor."""
        return {name: gather(tensor, self.slices.held[i][name]) for name, tensor in self.tensors.items()}

    def moments_of(self, i: int) -> dict[str, Tensor]:
        """A copy of this rank's rows of the moments of sub-GCN i's slice, by key."""
        found = {}
        for key, value in self.moments.items():
            name = name_of(key)
            whole = is_counter(key, value, self.tensors[name].shape)
            found[key] = (value if whole else gather(value, self.slices.held[i][name])).clone()
        return found

    def target(self, key: str) -> Tensor:
        """What this rank holds of a tensor or moment; a moment that is carried for the first time begins at zero."""
        own = self.tensors[name_of(key)]
        if key.startswith(THETA):
            return own
        if key not in self.moments:
            self.moments[key] = torch.zeros_like(own)
        return self.moments[key]

    def write(self, number: int, loss: float, trained: Mapping[int, Trained]) -> None:
        """Write round `number` into Θ (subAgg). Entries that several sub-GCNs hold are averaged over them."""
        self._merge(trained)
        self.round, self.loss = number + 1, loss

    def _merge(self, trained: Mapping[int, Trained]) -> None:
        slices = self.slices
        values, counts = values_by_key([trained[i] for i in range(len(slices.blocks))], slices.specs)
        self.moments |= counts
        for key, own in values.items():
            slices.merge(name_of(key), self.target(key), own)

    def forget_moments(self) -> None:
        """Drop all moments: those of the next round's sub-GCNs begin anew."""
        self.moments = {}

    def keep_best(self) -> None:
        """Keep a copy of Θ as the best one."""
        self.best = {name: tensor.clone() for name, tensor in self.tensors.items()}

    def values(self, *, best: bool) -> dict[str, Tensor]:
        """This rank's rows of Θ, or of the best Θ if there is one."""
        return self.best if best and self.best else self.tensors

    def fill(self, keys: Mapping[str, torch.Size], saved: Callable[[str], Tensor], rounds: int, loss: float) -> None:
        """Hold what a checkpoint has after some rounds: whole shapes by key; `saved` gives this rank's rows."""
        self.round, self.loss = rounds, loss
        for key in keys:
            name, value = name_of(key), saved(key)
            if key.startswith(THETA):
                self.tensors[name].copy_(value)
                continue
            # torch's optimisers count their steps on the host.
            value = value.to("cpu" if key.endswith("/step") else self.device, copy=True)
            if key.startswith(BEST):
                self.best[name] = value
            else:
                self.moments[key] = value

    def every(self) -> dict[str, Tensor]:
        """All that this rank holds, by key, not copied."""
        every = {f"{THETA}{name}": tensor for name, tensor in self.tensors.items()} | self.moments
        return every | {f"{BEST}{name}": tensor for name, tensor in self.best.items()}

    def model(self, spec: ModelSpec, *, best: bool, module: nn.Module | None) -> nn.Module:
        """The full model with a copy of the values; see `Theta.full_model`."""
        if module is None or self.streams:
            module = spec.from_seed().to(self.device)
        fill(module, self.values(best=best))
        return module.eval()

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model with a copy of the values, or with large ones themselves where they are on the host."""
        if self.streams:
            return assign(spec.on_meta(), self.tensors, "Θ").to(spec.device)
        return self.model(spec, best=False, module=module)
