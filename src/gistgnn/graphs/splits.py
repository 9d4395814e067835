"""Splits as numbers; drawn splits for data sets without one; graphs of which each edge is given once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.graphs.graph import Graph

Array = npt.NDArray[Any]

SPLITS = {"train": 1, "val": 2, "test": 3}
"""The numbers of the splits in files; 0 is in no split."""

# The seed belongs to the split, not to a run: results of different seeds are on the same nodes.
SPLIT_SEED = 2020


def masks_of(split: Any) -> dict[str, Any]:
    """Return the mask of every split: [N], by name, for the numbers of `SPLITS`: [N], a tensor or an array."""
    return {name: split == number for name, number in SPLITS.items()}


def draw_split(num_nodes: int, train: int, val: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ``train`` and ``val`` of ``num_nodes`` nodes uniformly at random; return the masks train, val, test: [N]."""
    # NumPy has frozen the stream of RandomState: the same nodes in every version.
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(num_nodes))
    masks = torch.zeros(3, num_nodes, dtype=torch.bool)
    for mask, nodes in zip(masks, order.tensor_split([train, train + val]), strict=True):
        mask[nodes] = True
    return masks[0], masks[1], masks[2]


def both_ways(one: Array, other: Array) -> Array:
    """Return ``edge_index``: [2, E] of edges that are given once, by their ends: [E / 2]."""
    return np.stack([np.concatenate([one, other]), np.concatenate([other, one])])


def undirected_graph(x: Array, one: Array, other: Array, y: Array, split: Array, **facts: Any) -> Graph:
    """Build a graph of edges that are given once, by their ends ``one`` and ``other``: [E / 2]; see `Graph.build`."""
    return Graph.build(x, both_ways(one, other), y, **masks_of(split), **facts)
