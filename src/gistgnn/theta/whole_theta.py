"""Θ of which one process has every tensor, in its memory or on its disk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.layout.axes import named_tensors
from gistgnn.partition import Blocks
from gistgnn.theta.theta import Theta
from gistgnn.theta.trained import check_fits, fill, give_moments


class WholeTheta(Theta):
    """Θ of which this process has every tensor."""

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
        """Copy the entries of a tensor in the blocks into another tensor of their shape."""
        target.copy_(self.slice(name, blocks))

    def take_slices(self, blocks: Blocks) -> dict[str, Tensor]:
        """The slice of Θ that belongs to the blocks, by name."""
        return {name: self.slice(name, blocks) for name in self.shapes}

    def take_moments(self, blocks: Blocks, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser the moments of the slice that belongs to the blocks, if there are any."""
        names = (name for name, _ in sub.named_parameters())
        give_moments(sub, optimizer, {name: self.slice_moments(name, blocks) for name in names})

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""
        return self.take_slices(self._blocks[i])

    def load(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module."""
        self.take(self._blocks[i], sub)

    def load_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i the moments of its slice."""
        self.take_moments(self._blocks[i], sub, optimizer)
