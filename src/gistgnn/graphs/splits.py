"""Splits for data sets without one: drawn with a fixed seed, the same for every seed of a run."""

import numpy as np
import torch
from torch import Tensor

# The seed belongs to the split, not to a run: results of different seeds are on the same nodes.
SPLIT_SEED = 2020


def draw_split(num_nodes: int, train: int, val: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ``train`` and ``val`` of ``num_nodes`` nodes uniformly at random; return the masks train, val, test: [N]."""
    # NumPy has frozen the stream of RandomState: the same nodes in every version.
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(num_nodes))
    masks = torch.zeros(3, num_nodes, dtype=torch.bool)
    for mask, nodes in zip(masks, order.tensor_split([train, train + val]), strict=True):
        mask[nodes] = True
    return masks[0], masks[1], masks[2]
