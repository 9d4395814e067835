"""Train a model of your own: a residual network, whose layers share one width."""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gistgnn import GIST
from gistgnn.graphs import load

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="digits", help="a name of `gistgnn datasets`, or a file")
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()

graph = load(args.dataset)


class ResidualNet(nn.Module):
    """Every layer adds to what it gets, so that all layers have the same features."""

    def __init__(self, width: int, layers: int = 3) -> None:
        super().__init__()
        self.enter = nn.Linear(graph.num_features, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.convs = nn.ModuleList(GCNConv(width, width) for _ in range(layers))
        self.leave = nn.Linear(width, graph.num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return a score for each class: [nodes, classes]."""
        h = self.enter(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = h + F.dropout(conv(norm(h), edge_index).relu(), 0.2, self.training)
        scores: Tensor = self.leave(h)
        return scores


# `widths` is one number, so the function gets one number. GIST finds out by itself which dimension
# of which parameter lies along it, and checks that.
gist = GIST(ResidualNet, widths=256, sub_gcns=4)
print(gist)
result = gist.fit(graph, epochs=args.epochs, local_steps=10, lr=0.005, progress=False)
print(f"test accuracy: {result.test['accuracy']:.1%}")

# The result is a ScaledModel: a layer that scales the features, and a ResidualNet of width 256.
model = result.model
torch.save(model.state_dict(), "residual.pt")
