"""The global parameters Θ: sub-GCNs take their slices from it (subGCNs) and write them back (subAgg)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.distributed import Alone, World
from gistgnn.errors import GistError, InputError
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.theta.model_spec import ModelSpec, TensorSpec, check_shapes
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import BEST, THETA, Cut, Slices, Trained, name_of

Losses = dict[int, float]  # sub-GCN -> mean over its steps


class Exchange:
    """One process trains all sub-GCNs. A subclass deals them to ranks (see `gistgnn.theta.between_ranks`)."""

    def __init__(self, ranks: World | None = None) -> None:
        self.ranks = ranks or Alone()

    def members(self, sub_gcns: int) -> list[int]:
        """The sub-GCNs that this process trains, of m."""
        return list(range(sub_gcns))

    def agree(self, losses: Losses, error: GistError | None, trained: Mapping[int, Trained]) -> Losses:
        """Merge the losses of all processes' sub-GCNs; if a process has an error, raise the first on all of them."""
        if error:
            raise error
        return losses

    def collect(self, blocks: Sequence[Blocks], trained: dict[int, Trained]) -> dict[int, Trained]:
        """Return the sub-GCNs that this process writes into its copy of Θ: its own ones, and those it receives."""
        return trained

    def communication(self, theta_bytes: int, local_steps: int) -> dict[str, Any] | None:
        """What the ranks have exchanged so far (see `gistgnn.distributed.communication`); None for one process."""
        return None


class Theta(ABC):
    """The parameters and buffers of the global model, and the optimiser's moments where they are carried.

    A subclass says where they lie; its `Exchange` says who trains the sub-GCNs. One round is open at a time: `begin`
    opens it, `load` and `keep` take slices out and hold what has been trained, `commit` writes it into Θ. Until then Θ
    is what it was. A new place for Θ is a subclass in a file of its own and an entry in `gistgnn.theta.registry`.
    """

    streams: bool = False  # a round holds one sub-GCN at a time; otherwise all of them
    lasts: bool = False  # Θ is on disk after every round, so the rest of a run's state has to be saved then, too
    shards: int = 1  # how many processes write a checkpoint together
    files_id: str | None = None  # of Θ's files, by which a checkpoint knows them; None: Θ has no files

    def __init__(
        self, layout: Layout, widths: Sequence[int], specs: Mapping[str, TensorSpec], exchange: Exchange | None = None
    ) -> None:
        self.slices, self.specs = Slices(layout, widths), specs
        self.exchange = exchange or Exchange()
        # What this process holds of parameters and buffers, by name; of carried moments, by key; of the best Θ, if any.
        self.tensors, self.moments, self.best = dict[str, Tensor](), dict[str, Tensor](), dict[str, Tensor]()
        self.round, self.loss = 0, 0.0  # the next round's number t, and the mean loss of the last one
        self.number = -1  # of the open round
        self.trained: dict[int, Trained] = {}  # the sub-GCNs of this process that the open round has kept
        self._open_blocks([])
        self._reader: Future[None] | None = None

    @classmethod
    @abstractmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> "Theta":
        """Make Θ with the model's initial values; `replace`: in place of an older Θ in the store's folder."""

    @classmethod
    def reopen(cls, store: Store, spec: ModelSpec) -> "Theta":
        """Open the Θ that an earlier process has left; raise InputError if there is no whole one of this model."""
        raise InputError(f"there is no Θ to resume in {store.kind}: resume from a checkpoint")

    @property
    def shard(self) -> int | None:
        """Which of the shards of a checkpoint this process writes; None: it writes nothing."""
        ranks = self.exchange.ranks
        return ranks.rank if ranks.leads or self.shards > 1 else None

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t, and forget one that was open; return the sub-GCNs that this process trains."""
        self.number, self.trained = number, {}
        self._open_blocks(blocks)
        return self.exchange.members(len(blocks))

    def _open_blocks(self, blocks: Sequence[Blocks]) -> None:
        self._blocks = list(blocks)
        self._cuts: list[dict[str, Cut]] = list(map(self.slices.cuts, blocks))  # of every sub-GCN, by name

    @abstractmethod
    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""

    @abstractmethod
    def moments_of(self, i: int) -> dict[str, Tensor]:
        """A copy of the moments of sub-GCN i's slice, by key; those that Θ holds."""

    def forget_moments(self) -> None:
        """Drop all moments: those of the next round's sub-GCNs begin anew."""
        self.moments = {}

    def keep(self, i: int, trained: Trained) -> None:
        """Hold a trained sub-GCN until the end of the round; copied to where Θ is, because its module is used again."""
        devices = {name: tensor.device for name, tensor in self.tensors.items()}
        self.trained[i] = {key: value.to(devices[name_of(key)], copy=True) for key, value in trained.items()}

    @abstractmethod
    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg). Entries that several sub-GCNs hold are averaged over them."""

    def copy(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def keep_best(self) -> None:
        """Keep a copy of Θ as the best one."""
        self.best = self.copy()

    def checkpoint(self) -> dict[str, Part]:
        """This process's part of the tensors from which Θ, its moments and the best Θ are restored, not copied."""
        every = {f"{THETA}{name}": tensor for name, tensor in self.tensors.items()} | self.moments
        every |= {f"{BEST}{name}": tensor for name, tensor in self.best.items()}
        parts = ((key, self._part(key, tensor)) for key, tensor in every.items())
        return {key: part for key, part in parts if part is not None}

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Resume after some rounds from a checkpoint; any store may have written it."""
        shapes = {name_of(key): shape for key, shape in saved.shapes.items() if key.startswith(THETA)}
        held = {name: TensorSpec(shape, torch.float32) for name, shape in shapes.items()}
        if not held:
            raise InputError(
                "the checkpoint holds no parameters: the run keeps them in its own files; resume with --store disk, or "
                "start again"
            )
        check_shapes(held, self.specs, "the checkpoint", "this model", "start again")
        self.round = rounds
        for key in saved.shapes:
            name, value = name_of(key), self._saved_part(saved, key)
            if key.startswith(THETA):
                self.tensors[name].copy_(value)
                continue
            # torch's optimisers count their steps on the host.
            value = value.to("cpu" if key.endswith("/step") else self.tensors[name].device, copy=True)
            if key.startswith(BEST):
                self.best[name] = value
            else:
                self.moments[key] = value

    @abstractmethod
    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model with Θ's parameters (`best`: the best ones), in evaluation mode; all ranks call this."""
        # Parameters in memory are copied; large ones in files are mapped. Where Θ is sharded, rank 0 collects them, and
        # other ranks get a model without values. `module` is one of `running_model`, which may be filled again.

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model on its device with the parameters that Θ has now; on ranks other than 0 without values."""
        # All ranks call this. `module` is that of the last call, which may be filled again.
        return self.full_model(spec)

    def reading(self, reader: Future[None]) -> None:
        """Tell that a thread reads Θ: the next round is written when the thread is done."""
        self._reader = reader

    def wait_for_reader(self) -> None:
        """Wait for the thread that reads Θ, if there is one, and raise the error that it has raised."""
        reader, self._reader = self._reader, None
        if reader:
            reader.result()

    def _target(self, key: str) -> Tensor:
        """What this process holds of a tensor or moment; a moment that is carried for the first time begins at zero."""
        own = self.tensors[name_of(key)]
        if key.startswith(THETA):
            return own
        if key not in self.moments:
            self.moments[key] = torch.zeros_like(own)
        return self.moments[key]

    def _part(self, key: str, tensor: Tensor) -> Part | None:
        """What this process writes of a tensor into a checkpoint."""
        return Part.whole(tensor)

    def _saved_part(self, saved: Checkpoint, key: str) -> Tensor:
        """What this process takes of a tensor in a checkpoint."""
        return saved.tensor(key)
