"""Which share of Θ a run has trained, and how often: it follows from the blocks alone (section 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.layout.axes import Dim, Layout
from gistgnn.partition import Blocks, Partition
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.utils.random_streams import generator

SAMPLED = 2048  # entries of a tensor whose rounds are counted

Numbers = npt.NDArray[np.int64]
Place = tuple[Numbers, Numbers]  # of sampled entries in one dimension: their axis (-1: none that is split), feature


def partition_of(partition: Partition, blocks: list[Blocks]) -> list[dict[str, Any]]:
    """What result.json holds of the partition: every axis with its features and the sizes of its blocks."""
    return [
        {
            "name": name,
            "features": d,
            "blocks": [d] if axis in partition.whole else [len(own[axis]) for own in blocks],
        }
        for axis, (name, d) in enumerate(zip(partition.names, partition.features, strict=True))
    ]


def coverage_of(
    spec: ModelSpec, partition: Partition, blocks_of: Callable[[int], list[Blocks]], rounds: int
) -> dict[str, Any]:
    """Count in how many rounds the parameters of Θ have been trained.

    A parameter that lies along one split axis, or none, is in some sub-GCN in every round; one that lies along two is
    in those rounds whose blocks have both of its features in one sub-GCN: 1/m of them on average.

    Args:
        spec: the full model.
        partition: says which axes are split.
        blocks_of: returns the blocks of round t.
        rounds: T, that are done.

    Returns:
        "rounds": T; "parameters": of Θ; "counts": the share of the parameters by the number of rounds. Of a tensor of
        more than `SAMPLED` entries, as many are drawn to stand for it.
    """
    tensors = dict(spec.on_meta().named_parameters())
    total = sum(tensor.numel() for tensor in tensors.values())
    often, sampled = 0, []
    for name, tensor in tensors.items():
        places = _places(spec.layout, partition, name, tuple(tensor.shape))
        if len(places) < 2:
            often += tensor.numel()
        else:
            sampled.append((tensor.numel(), places))
    counts = {rounds: often / total} if often else {}
    trained = [np.zeros(len(places[0][0]), np.int64) for _, places in sampled]
    for t in range(rounds) if sampled else ():
        owners = _owners(partition, blocks_of(t))
        for found, (_, places) in zip(trained, sampled, strict=True):
            found += _together(owners, places)
    for found, (size, _) in zip(trained, sampled, strict=True):
        for count, entries in zip(*np.unique(found, return_counts=True), strict=True):
            counts[int(count)] = counts.get(int(count), 0.0) + size / total * entries / len(found)
    return {"rounds": rounds, "parameters": total, "counts": {str(n): counts[n] for n in sorted(counts)}}


def _places(layout: Layout, partition: Partition, name: str, shape: tuple[int, ...]) -> list[Place]:
    """Where sampled entries of a tensor lie in those of its dimensions that have a split axis."""
    if not shape:
        return []
    size = int(np.prod(shape))
    drawn = np.arange(size) if size <= SAMPLED else generator(partition.seed, "coverage").integers(size, size=SAMPLED)
    along = [_along(partition, dim) for dim in layout.dims[name]]
    index = np.unravel_index(drawn, shape)
    return [(axis[i], feature[i]) for (axis, feature), i in zip(along, index, strict=True) if (axis >= 0).any()]


def _along(partition: Partition, dim: Dim) -> Place:
    """For every position of a dimension its axis and feature."""
    axes, features = [], []
    for segment in dim:
        split = segment.axis is not None and segment.axis not in partition.whole
        d = segment.fixed if segment.axis is None else partition.features[segment.axis]
        axes.append(np.full(d, segment.axis if split else -1, np.int64))
        features.append(np.arange(d))
    return (np.concatenate(axes), np.concatenate(features)) if axes else (np.full(1, -1), np.zeros(1, np.int64))


def _owners(partition: Partition, blocks: list[Blocks]) -> list[Numbers]:
    """For every axis the sub-GCN that each feature is in."""
    owners = []
    for axis, d in enumerate(partition.features):
        owner = np.zeros(d, np.int64)
        for i, own in enumerate(blocks):
            owner[own[axis].numpy()] = i
        owners.append(owner)
    return owners


def _together(owners: list[Numbers], places: list[Place]) -> npt.NDArray[np.bool_]:
    """Which entries have all their features in one sub-GCN."""
    fine = np.ones(len(places[0][0]), bool)
    first = np.full(len(fine), -1)
    for axis, feature in places:
        owner = np.full(len(fine), -1)
        for each in np.unique(axis[axis >= 0]):
            chosen = axis == each
            owner[chosen] = owners[each][feature[chosen]]
        fine &= (owner < 0) | (first < 0) | (owner == first)
        first = np.where(first < 0, owner, first)
    return fine
