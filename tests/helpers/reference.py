"""Θ by the definition, entry by entry: slow, and written without gistgnn.theta."""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gistgnn.layout.axes import Dim, Layout

Blocks = Sequence[Tensor]


def held_positions(dim: Dim, blocks: Blocks, features: Sequence[int]) -> list[int]:
    """The positions of a dimension that a sub-GCN with these blocks holds."""
    found = list[int]()
    offset = 0
    for segment in dim:
        size = segment.fixed if segment.axis is None else features[segment.axis]
        held = range(size) if segment.axis is None else blocks[segment.axis].tolist()
        found += [offset + k for k in held]
        offset += size
    return found


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
    """The global tensor after subAgg: the holder's value, the mean over the holders, or the old
    value.
    """
    given: dict[tuple[int, ...], list[Tensor]] = {}
    for own, value in zip(blocks, values, strict=True):
        rows = [held_positions(dim, own, features) for dim in layout.dims[name]]
        for local in itertools.product(*(range(len(r)) for r in rows)):
            given.setdefault(tuple(r[i] for r, i in zip(rows, local, strict=True)), []).append(
                value[local]
            )
    new = old.clone()
    for entry, held in given.items():
        if len(held) == 1:
            new[entry] = held[0]
        elif old.is_floating_point():
            new[entry] = torch.stack(held).double().mean()
        elif old.dtype != torch.bool:
            new[entry] = old[entry] + sum(int(v - old[entry]) for v in held) // len(held)
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
