"""Which entries of Θ belong to a sub-GCN, and how they are read from a tensor and written to it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.axes import Dim, Layout, Widths
from gistgnn.partition import Blocks

Array = npt.NDArray[Any]
Cut = tuple[Tensor | None, ...]  # for every dimension the chosen positions, ascending; None: all of them

_LONG = 256  # columns


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
    if not _is_long_rows(tensor, cut):
        return tensor[index_of(tensor, cut)]
    rows, columns = _positions(tensor, cut)
    found = torch.empty(len(rows), len(columns), dtype=tensor.dtype)
    gather_into(found, tensor, cut)
    return found


def gather_into(target: Tensor, tensor: Tensor, cut: Cut) -> None:
    """Copy the cut's entries of a tensor into another of their shape."""
    if not (_is_long_rows(tensor, cut) and target.dtype == tensor.dtype and target.device.type == "cpu"):
        target.copy_(gather(tensor, cut))
        return
    rows, columns = _positions(tensor, cut)
    source, out = _words(tensor), _words(target)
    for i, row in enumerate(rows):
        np.take(source[row], columns, out=out[i], mode="clip")  # the other modes make a copy first


def scatter(tensor: Tensor, cut: Cut, values: Tensor) -> None:
    """Set the cut's entries of a tensor."""
    values = values.to(tensor.device, tensor.dtype)
    if not _is_long_rows(tensor, cut):
        tensor[index_of(tensor, cut)] = values
        return
    rows, columns = _positions(tensor, cut)
    target, source = _words(tensor), _words(values)
    for i, row in enumerate(rows):
        target[row][columns] = source[i]


def _is_long_rows(tensor: Tensor, cut: Cut) -> bool:
    """Whether many columns of some rows are cut: row by row, NumPy is several times faster than torch's indexing."""
    columns = cut[1] if len(cut) == 2 else None
    plain = type(tensor) is Tensor and tensor.device.type == "cpu"  # NumPy knows nothing of tensors without values
    return plain and columns is not None and len(columns) >= _LONG


def _positions(tensor: Tensor, cut: Cut) -> tuple[Sequence[int], Array]:
    rows, columns = cut
    assert columns is not None
    return range(len(tensor)) if rows is None else rows.tolist(), columns.numpy()


def _words(tensor: Tensor) -> Array:
    """The tensor as an array; NumPy has no bfloat16, and does not look at the numbers."""
    array: Array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
