"""Θ of which one process has every tensor, in its memory or on its disk."""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.layout.axes import named_tensors
from gistgnn.partition import Blocks
from gistgnn.theta.theta import Theta
from gistgnn.theta.trained import check_fits, give_moments


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
