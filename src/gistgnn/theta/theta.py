"""The global parameters Θ: sub-GCNs take their slices from it (subGCNs) and write them back (subAgg)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.distributed import Alone, World
from gistgnn.errors import InputError
from gistgnn.layout.axes import Layout, named_tensors
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.theta.model_spec import ModelSpec, TensorSpec
from gistgnn.theta.slices import Slices
from gistgnn.theta.store import Store
from gistgnn.theta.trained import RoundReport, Trained, check_fits, give_moments


class Exchange:
    """One process trains all sub-GCNs, and there is nobody to exchange them with.

    A subclass deals the sub-GCNs to ranks (see `gistgnn.theta.ranks.between_ranks`).

    Attributes:
        ranks: the processes of the run.
    """

    def __init__(self, ranks: World | None = None) -> None:
        self.ranks = ranks or Alone()

    def members(self, sub_gcns: int) -> list[int]:
        """The sub-GCNs that this process trains, of m."""
        return list(range(sub_gcns))

    def agree(self, report: RoundReport, trained: Mapping[int, Trained]) -> RoundReport:
        """Merge the reports of all processes, or raise on all of them the first error in a report."""
        if report.error:
            raise report.error
        return report

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

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        specs: the shape and type of every parameter and buffer.
        exchange: who trains the sub-GCNs; None: this process, all of them.

    Attributes:
        streams: a round holds one sub-GCN at a time; otherwise all of them.
        lasts: Θ is on disk after every round, so the rest of a run's state has to be saved then, too.
        shards: how many processes write a checkpoint together.
        round: the next round's number t, from 0.
        loss: the mean loss of the last round.
        files_id: the id of Θ's files, by which a checkpoint knows them; None: Θ has no files.
    """

    streams: bool = False
    lasts: bool = False
    shards: int = 1
    files_id: str | None = None

    def __init__(
        self,
        layout: Layout,
        widths: Sequence[int],
        specs: Mapping[str, TensorSpec],
        exchange: Exchange | None = None,
    ) -> None:
        self.slices, self.specs = Slices(layout, widths), specs
        self.exchange = exchange or Exchange()
        self.round = 0
        self.loss = 0.0
        self._number, self._blocks = -1, list[Blocks]()
        self._trained: dict[int, Trained] = {}
        self._reader: Future[None] | None = None

    @classmethod
    @abstractmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> Theta:
        """Make Θ with the model's initial values, which are the same in every place.

        Args:
            store: the place.
            spec: the model.
            ranks: the processes of the run.
            replace: an older Θ in the store's folder is replaced.
        """

    @classmethod
    def reopen(cls, store: Store, spec: ModelSpec) -> Theta:
        """Open the Θ that an earlier process has left; raise InputError if there is no whole one of this model."""
        raise InputError(f"there is no Θ to resume in {store.kind}: resume from a checkpoint")

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """The shape of every parameter and buffer."""
        return {name: spec.shape for name, spec in self.specs.items()}

    @property
    def shard(self) -> int | None:
        """Which of the shards of a checkpoint this process writes; None: it writes nothing."""
        ranks = self.exchange.ranks
        return ranks.rank if ranks.leads or self.shards > 1 else None

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t with the blocks of its sub-GCNs; a round that was open is forgotten.

        Returns:
            The sub-GCNs that this process trains.
        """
        self._number, self._blocks, self._trained = number, list(blocks), {}
        return self.exchange.members(len(blocks))

    def check_open(self, number: int) -> None:
        """Raise InputError if round t is not the open one: another has begun since."""
        if number != self._number:
            raise InputError(f"round {number + 1} is over: round {self._number + 1} has begun since")

    @abstractmethod
    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""

    @abstractmethod
    def load(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module."""

    @abstractmethod
    def load_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i the moments that Θ holds for its slice, if there are any."""

    @abstractmethod
    def forget_moments(self) -> None:
        """Drop all moments: those of the next round's sub-GCNs begin anew."""

    @abstractmethod
    def keep(self, i: int, trained: Trained) -> None:
        """Hold a trained sub-GCN until the end of the round."""

    def agree(self, report: RoundReport) -> RoundReport:
        """Merge the reports of all processes; see `Exchange.agree`."""
        return self.exchange.agree(report, self._trained)

    @abstractmethod
    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg). Entries that several sub-GCNs hold are averaged over them."""

    @abstractmethod
    def keep_best(self) -> None:
        """Keep a copy of Θ as the best one."""

    @abstractmethod
    def checkpoint(self) -> dict[str, Part]:
        """This process's part of the tensors from which Θ, its moments and the best Θ are restored, not copied."""

    @abstractmethod
    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Resume after some rounds from a checkpoint; any store may have written it."""

    @abstractmethod
    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model with the parameters of Θ, in evaluation mode.

        Parameters in memory are copied; large ones in files are mapped. With several ranks, all of them call this.
        Where Θ is sharded, rank 0 collects the parameters, and the other ranks get a model without values.

        Args:
            spec: the model.
            best: take the best Θ, if there is one.
            module: a module of `running_model`, which may be filled instead of a new one.
        """

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model on its device with the parameters that Θ has now; on ranks other than 0 without values.

        All ranks call this.

        Args:
            spec: the model.
            module: the module of the last call, which may be filled again.
        """
        return self.full_model(spec)

    def communication(self, local_steps: int) -> dict[str, Any] | None:
        """What the ranks have exchanged so far (see `gistgnn.distributed.communication`); None for one process."""
        return self.exchange.communication(sum(spec.nbytes for spec in self.specs.values()), local_steps)

    def reading(self, reader: Future[None]) -> None:
        """Tell that a thread reads Θ: the next round is written when the thread is done."""
        self._reader = reader

    def wait_for_reader(self) -> None:
        """Wait for the thread that reads Θ, if there is one, and raise the error that it has raised."""
        reader, self._reader = self._reader, None
        if reader:
            reader.result()

    def _finish_round(self, loss: float) -> None:
        self.round, self.loss = self._number + 1, loss
        self._trained = {}


class WholeTheta(Theta):
    """Θ of which this process has every tensor."""

    @abstractmethod
    def slice(self, name: str, blocks: Blocks) -> Tensor:
        """The entries of a tensor in the blocks."""

    @abstractmethod
    def slice_moments(self, name: str, blocks: Blocks) -> dict[str, Tensor]:
        """The entries of a parameter's moments in the blocks, copied; a step count as it is."""

    def slice_into(self, target: Tensor, name: str, blocks: Blocks) -> None:
        """Copy the entries of a tensor in the blocks into another tensor of their shape."""
        target.copy_(self.slice(name, blocks))

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""
        return {name: self.slice(name, self._blocks[i]) for name in self.specs}

    def load(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module."""
        blocks = self._blocks[i]
        check_fits(sub, {name: self.slices.shape(name, spec.shape, blocks) for name, spec in self.specs.items()})
        with torch.no_grad():
            for name, target in named_tensors(sub).items():
                self.slice_into(target, name, blocks)

    def load_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i the moments of its slice."""
        names = (name for name, _ in sub.named_parameters())
        give_moments(sub, optimizer, {name: self.slice_moments(name, self._blocks[i]) for name in names})
