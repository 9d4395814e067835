"""Θ that a process has all of, and how slices are taken from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.layout.axes import named_tensors
from gistgnn.partition import Blocks
from gistgnn.theta.theta import Pending, Theta, check_fits, fill


class LocalTheta(Theta):
    """Θ that this process has all of, in its memory or in files."""

    @property
    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """Every parameter and buffer of the full model, by name."""

    @property
    @abstractmethod
    def moments(self) -> Mapping[str, Mapping[str, Tensor]]:
        """The moments that are carried: parameter -> the optimiser's key -> state."""

    @abstractmethod
    def slice(self, name: str, blocks: Blocks) -> Tensor:
        """The entries of a tensor in the blocks."""

    @abstractmethod
    def slice_moments(self, name: str, blocks: Blocks) -> dict[str, Tensor]:
        """The entries of a parameter's moments in the blocks, copied; a step count as it is."""

    def load_into(self, module: nn.Module) -> None:
        """Copy all of Θ into a module of the full widths."""
        fill(module, self.tensors)

    def take(self, blocks: Blocks, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to the blocks into a module of the blocks' widths.

        Raises:
            InputError: the module's parameters do not have the slice's names or shapes.
        """
        check_fits(sub, {name: self.slices.shape(name, self.shapes[name], blocks) for name in self.shapes})
        with torch.no_grad():
            for name, target in named_tensors(sub).items():
                self.slice_into(target, name, blocks)

    def slice_into(self, target: Tensor, name: str, blocks: Blocks) -> None:
        """Copy the entries of a tensor in the blocks into another of their shape."""
        target.copy_(self.slice(name, blocks))

    def take_slices(self, blocks: Blocks) -> dict[str, Tensor]:
        """The slice of Θ that belongs to the blocks, by name."""
        return {name: self.slice(name, blocks) for name in self.shapes}

    def take_moments(self, blocks: Blocks, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of the sub-GCN the moments that were put back for its entries, if there are any."""
        names = (name for name, _ in sub.named_parameters())
        self.give_moments(sub, optimizer, {name: self.slice_moments(name, blocks) for name in names})


class TakesLocally:
    """Of a round: its slices are taken from a Θ that this process has all of."""

    _theta: LocalTheta
    blocks: Sequence[Blocks]

    def take(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module; see `Pending`."""
        self._theta.take(self.blocks[i], sub)

    def slices(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""
        return self._theta.take_slices(self.blocks[i])

    def take_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i its moments."""
        self._theta.take_moments(self.blocks[i], sub, optimizer)


class LocalPending(TakesLocally, Pending):
    """A round of a process that trains alone."""

    def __init__(self, theta: LocalTheta, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(number, blocks)
        self._theta = theta
