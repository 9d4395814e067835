"""Which entries of Θ belong to a sub-GCN, and how they are read from a tensor and written to it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gistgnn.axes import Dim, Layout, Widths
from gistgnn.partition import Blocks

Cut = tuple[Tensor | None, ...]  # for every dimension the chosen positions, ascending; None: all of them


class Slices:
    """The slices that blocks cut out of every tensor of a model.

    The entries of a parameter, of a buffer and of a parameter's moments that belong to a sub-GCN are those whose every
    dimension lies in the sub-GCN's blocks.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
    """

    def __init__(self, layout: Layout, widths: Sequence[int]) -> None:
        self.layout = layout
        self.features: Widths = layout.features(widths)

    def cut(self, name: str, blocks: Blocks) -> Cut:
        """The positions of the blocks in each dimension of a tensor."""
        return tuple(
            None if self._is_whole(dim, blocks) else self.layout.positions(dim, blocks, self.features)
            for dim in self.layout.dims[name]
        )

    def disjoint(self, name: str, blocks: Sequence[Blocks]) -> bool:
        """Say whether no entry is held by two sub-GCNs: some dimension is made of partitioned axes alone."""
        return len(blocks) == 1 or any(
            all(s.axis is not None and len(blocks[0][s.axis]) < self.features[s.axis] for s in dim)
            for dim in self.layout.dims[name]
            if dim
        )

    def everything(self) -> Blocks:
        """The blocks of the whole model."""
        return tuple(torch.arange(d) for d in self.features)

    def _is_whole(self, dim: Dim, blocks: Blocks) -> bool:
        return all(s.axis is None or len(blocks[s.axis]) == self.features[s.axis] for s in dim)


def index_of(tensor: Tensor, cut: Cut) -> tuple[Tensor | slice, ...]:
    """The cut as an index of a tensor; dimensions that are kept whole are slices where this keeps their order."""
    chosen = [i for i, positions in enumerate(cut) if positions is not None]
    index: list[Tensor | slice] = [slice(None)] * len(cut)
    for i in range(chosen[0], chosen[-1] + 1) if chosen else ():  # a slice between index tensors would move dimensions
        positions = cut[i]
        positions = torch.arange(tensor.shape[i]) if positions is None else positions
        index[i] = positions.to(tensor.device).view(-1, *[1] * (chosen[-1] - i))
    return tuple(index)


def gather(tensor: Tensor, cut: Cut) -> Tensor:
    """The cut's entries of a tensor; a view where nothing is cut."""
    return tensor[index_of(tensor, cut)]


def scatter(tensor: Tensor, cut: Cut, values: Tensor) -> None:
    """Set the cut's entries of a tensor."""
    tensor[index_of(tensor, cut)] = values.to(tensor.device, tensor.dtype)
