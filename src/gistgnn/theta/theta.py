"""The global parameters Θ: what sub-GCNs take from it (subGCNs) and give back to it (subAgg)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.checkpoint import Checkpoint, Part
from gistgnn.errors import GistError, InputError
from gistgnn.layout.axes import Layout, named_tensors
from gistgnn.partition import Blocks
from gistgnn.theta.slices import Slices

T = TypeVar("T")

Moments = dict[str, dict[str, Tensor]]  # parameter -> the optimiser's key -> state


@dataclass
class Trained:
    """What a sub-GCN gives back.

    Args:
        tensors: its parameters and buffers.
        moments: its optimiser's state of every parameter; empty where it is not carried.
    """

    tensors: dict[str, Tensor]
    moments: Moments = field(default_factory=dict)

    @classmethod
    def of(cls, sub: nn.Module, optimizer: Optimizer | None = None) -> Trained:
        """The tensors of a module and the states of its optimiser, not copied."""
        trained = cls(named_tensors(sub))
        if optimizer is not None:
            trained.moments = {
                name: {key: value for key, value in optimizer.state.get(p, {}).items() if isinstance(value, Tensor)}
                for name, p in sub.named_parameters()
            }
        return trained


@dataclass
class Said:
    """What a process has to say of its sub-GCNs when a round ends, or all processes of theirs.

    Args:
        losses: the mean loss of every sub-GCN that took a step.
        error: why they cannot be written into Θ.
    """

    losses: dict[int, float]
    error: GistError | None = None


class Pending(ABC):
    """One round's exchange with Θ: what its sub-GCNs take, and what they have become, of which Θ knows nothing yet.

    Args:
        number: t.
        blocks: of every sub-GCN.

    Attributes:
        members: the sub-GCNs that this process trains, all of them where it trains alone.
    """

    def __init__(self, number: int, blocks: Sequence[Blocks]) -> None:
        self.number, self.blocks = number, blocks
        self.members = list(range(len(blocks)))

    @abstractmethod
    def take(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module.

        Raises:
            InputError: the module's parameters do not have the slice's names or shapes.
        """

    @abstractmethod
    def slices(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""

    @abstractmethod
    def take_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i the moments that were put back for its entries, if there are any."""

    @abstractmethod
    def set_aside(self, i: int, trained: Trained) -> None:
        """Keep what sub-GCN i has become until the round's end."""

    def agree(self, said: Said) -> Said:
        """Put together what all processes have to say of their sub-GCNs; the first error of any is raised in all."""
        if said.error:
            raise said.error
        return said

    @abstractmethod
    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg): entries that several sub-GCNs hold are averaged over them."""


class Theta(ABC):
    """The parameters and buffers of the global model, and the optimiser's moments where they are carried.

    Every tensor is cut by the same indices (see `Slices`). A new place for Θ is a subclass in a file of its own.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.

    Attributes:
        streams: a round holds one sub-GCN at a time where it can; otherwise all of them.
        round: the next round's number t, from 0.
        loss: the mean loss of the last round that was written.
        lasts: Θ is on the disk after every round, so that the rest of a run's state should be, too.
        shards: how many processes write a checkpoint together.
        shard: which of them this one is, or None where it writes nothing.
    """

    streams: bool = False
    lasts: bool = False
    shards: int = 1
    shard: int | None = 0

    def __init__(self, layout: Layout, widths: Sequence[int]) -> None:
        self.slices = Slices(layout, widths)
        self.round = 0
        self.loss = 0.0
        self._busy: Future[None] | None = None

    @property
    @abstractmethod
    def shapes(self) -> dict[str, torch.Size]:
        """The shape of every parameter and buffer."""

    @abstractmethod
    def begin(self, number: int, blocks: Sequence[Blocks]) -> Pending:
        """Begin round t with the blocks of its sub-GCNs; one that was begun and not committed is forgotten."""

    @abstractmethod
    def keep_best(self) -> None:
        """Keep Θ as it stands as the best one."""

    @abstractmethod
    def checkpoint(self) -> dict[str, Part]:
        """What this process has of the tensors that Θ, its moments and the best Θ are restored from, not copied."""

    @abstractmethod
    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Go on from a checkpoint, whatever store it was made of, after some rounds.

        Raises:
            InputError: it cannot be read, or Θ is not in it.
        """

    def wait_for(self, work: Future[None]) -> None:
        """Let a thread read Θ: the next round is written into it when the work is done."""
        self._busy = work

    def settle(self) -> None:
        """Wait for the thread that reads Θ, if there is one, and raise what it has raised."""
        busy, self._busy = self._busy, None
        if busy:
            busy.result()

    def led(self, work: Callable[[], T]) -> T:
        """Do some work that reads all of Θ: where there are several ranks, on rank 0, and all get what it returns."""
        return work()

    def together(self, work: Callable[[], T]) -> T:
        """Do some work here, and on every rank where there are several; what fails on any of them is raised on all."""
        return work()

    def any_of(self, flag: bool) -> bool:
        """Whether a flag is set, on any rank where there are several."""
        return flag

    def communication(self, local_steps: int) -> dict[str, Any] | None:
        """What ranks have exchanged so far (see `gistgnn.distributed.communication`); None where there are none."""
        return None

    def counts(self, name: str, key: str, state: Tensor) -> bool:
        """Say whether an optimiser's state of a parameter is one number for all of it."""
        return is_counter(key, state.shape, self.shapes[name])

    def give_moments(self, sub: nn.Module, optimizer: Optimizer, moments: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Set an optimiser's state of every parameter for which there is one, on the devices that torch expects."""
        fused = any(group.get("fused") for group in optimizer.param_groups)  # counts steps on the GPU too
        for name, parameter in sub.named_parameters():
            if not (found := moments.get(name)):
                continue
            counter_device = parameter.device if fused else torch.device("cpu")
            optimizer.state[parameter] = {
                key: value.to(counter_device) if self.counts(name, key, value) else value.to(parameter)
                for key, value in found.items()
            }


def fill(module: nn.Module, slices: Mapping[str, Tensor]) -> None:
    """Copy slices of Θ into a module's parameters and buffers.

    Raises:
        InputError: the module's parameters do not have the slice's names or shapes.
    """
    check_fits(module, {name: tensor.shape for name, tensor in slices.items()})
    with torch.no_grad():
        for name, target in named_tensors(module).items():
            target.copy_(slices[name], non_blocking=True)


def check_fits(module: nn.Module, shapes: Mapping[str, torch.Size]) -> None:
    """Refuse a module whose parameters and buffers do not have these names and shapes.

    Raises:
        InputError: the first one that differs is named.
    """
    own = named_tensors(module)
    if differing := sorted(own.keys() ^ shapes.keys()):
        raise InputError(f"parameter '{differing[0]}' is not in both the sub-GCN and the global model")
    for name, target in own.items():
        if shapes[name] != target.shape:
            raise InputError(
                f"parameter '{name}' of a sub-GCN is {tuple(target.shape)}, its slice {tuple(shapes[name])}: "
                "build the same layers at every width"
            )


def is_counter(key: str, state: torch.Size, parameter: torch.Size) -> bool:
    """Say whether an optimiser's state is one number for a whole parameter, such as its steps, and not cut with it."""
    return key == "step" or (len(state) == 0 and len(parameter) > 0)
