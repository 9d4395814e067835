"""Θ by the definition, entry by entry: slow, and written without gistgnn.theta."""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gistgnn.layout.axes import Dim, Layout

Blocks = Sequence[Tensor]


def held_positions(dim: Dim, blocks: Blocks, features: Sequence[int]) -> list[int]:
    """The positions of a dimension that a sub-GCN with these blocks holds."""
    positions = list[int]()
    offset = 0
    for segment in dim:
        if segment.axis is None:
            size = segment.fixed
            indices = list(range(size))
        else:
            size = features[segment.axis]
            indices = blocks[segment.axis].tolist()
        positions += [offset + k for k in indices]
        offset += size
    return positions


def slice_of(
    layout: Layout, name: str, tensor: Tensor, blocks: Blocks, features: Sequence[int]
) -> Tensor:
    """The entries of a global tensor that a sub-GCN holds."""
    rows = [held_positions(dim, blocks, features) for dim in layout.dims[name]]
    values = [tensor[entry] for entry in itertools.product(*rows)]
    return torch.stack(values).view([len(r) for r in rows])


def merged(
    layout: Layout,
    name: str,
    old: Tensor,
    values: Sequence[Tensor],
    blocks: Sequence[Blocks],
    features: Sequence[int],
) -> Tensor:
    """The global tensor after subAgg.

    An entry is the holder's value, the mean over the holders, or the old value.
    """
    contributions: dict[tuple[int, ...], list[Tensor]] = {}
    for sub_blocks, value in zip(blocks, values, strict=True):
        rows = [held_positions(dim, sub_blocks, features) for dim in layout.dims[name]]
        for local in itertools.product(*(range(len(r)) for r in rows)):
            entry = tuple(r[i] for r, i in zip(rows, local, strict=True))
            contributions.setdefault(entry, []).append(value[local])
    new = old.clone()
    for entry, contributed in contributions.items():
        if len(contributed) == 1:
            new[entry] = contributed[0]
        elif old.is_floating_point():
            new[entry] = torch.stack(contributed).double().mean()
        elif old.dtype != torch.bool:
            changes = sum(int(v - old[entry]) for v in contributed)
            new[entry] = old[entry] + changes // len(contributed)
    return new


def zeroed(
    layout: Layout, tensors: Mapping[str, Tensor], blocks: Blocks, features: Sequence[int]
) -> dict[str, Tensor]:
    """The full tensors with every entry outside the blocks set to zero."""
    result = {}
    for name, tensor in tensors.items():
        rows = [torch.tensor(held_positions(dim, blocks, features)) for dim in layout.dims[name]]
        mask = torch.zeros_like(tensor)
        mask[torch.meshgrid(*rows, indexing="ij")] = 1
        result[name] = tensor * mask
    return result
