"""Edges with weights: a model gets them if its forward has an argument of that name."""

import argparse

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from gistgnn import GIST
from gistgnn.graphs import load

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()


def similar_digits() -> Data:
    """Return a graph of handwritten digits, whose edges are weighted by similarity.

    It has as many random edges as real ones.
    """
    digits = load("digits")
    rng = torch.Generator().manual_seed(0)
    noise = torch.randint(digits.num_nodes, digits.edge_index.shape, generator=rng)
    edges = torch.cat([digits.edge_index, noise], dim=1)
    distance = (digits.x[edges[0]] - digits.x[edges[1]]).norm(dim=1)
    weight = torch.exp(-((distance / distance.median()) ** 2) * 4)
    masks = {"train_mask": digits.train, "val_mask": digits.val, "test_mask": digits.test}
    return Data(x=digits.x, edge_index=edges, y=digits.y, edge_weight=weight, **masks)


class WeightedGCN(nn.Module):
    """Two of PyG's layers.

    `edge_weight` has a default, so that the model also takes a graph without weights.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(64, width)
        self.conv2 = GCNConv(width, 10)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return a score for each class: [nodes, 10]."""
        h = self.conv1(x, edge_index, edge_weight).relu()
        scores: Tensor = self.conv2(h, edge_index, edge_weight)
        return scores


data = similar_digits()
for name in ("with", "without"):
    if name == "without":
        data.edge_weight = None
    result = GIST(WeightedGCN, widths=128, sub_gcns=2).fit(data, epochs=args.epochs, progress=False)
    print(f"{name} weights: test accuracy {result.test['accuracy']:.1%}")
