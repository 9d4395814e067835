"""Graph classification in a loop of your own: images as graphs of pixels.

GIST with two sub-GCNs is compared with ordinary training (m = 1).
"""

import argparse
import random

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_mean_pool
from torch_geometric.utils import grid

from gistgnn import GIST, Loop

parser = argparse.ArgumentParser()
parser.add_argument("--graphs", type=int, default=1797)
parser.add_argument("--rounds", type=int, default=20)
args = parser.parse_args()

# An image has 8 x 8 pixels. A pixel has edges to the eight pixels around it, and features that say
# in which row and column it lies: [64, 16].
edges, _ = grid(8, 8)
rows = torch.eye(8).repeat_interleave(8, dim=0)
columns = torch.eye(8).repeat(8, 1)
positions = torch.cat([rows, columns], dim=1)
images, digits = load_digits(return_X_y=True)
brightness = torch.tensor(images).float() / 4  # from 0 to 4, as the mean over an image is small
graphs = []
for image, digit in zip(brightness[: args.graphs], digits, strict=False):
    graphs.append(Data(x=positions * image.unsqueeze(1), edge_index=edges, y=torch.tensor([digit])))
random.Random(0).shuffle(graphs)
fifth = len(graphs) // 5
val = graphs[:fifth]
test = graphs[fifth : 2 * fifth]
train = graphs[2 * fifth :]


class GraphClassifier(nn.Module):
    """Scores for every graph of a batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = GIN(16, width, num_layers=2)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the scores: [graphs, 10].

        Without `batch` every node is a graph. GIST calls the model so when it checks it.
        """
        h = self.encoder(x, edge_index)
        if batch is not None:
            h = global_mean_pool(h, batch)
        scores: Tensor = self.head(h)
        return scores


def train_an_epoch(model: nn.Module) -> None:
    """Take a step for every batch of 64 graphs."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for batch in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, held_out: list[Data]) -> float:
    """Return the share of the graphs whose class is right."""
    right = [
        model(batch.x, batch.edge_index, batch.batch).argmax(dim=1) == batch.y
        for batch in DataLoader(held_out, batch_size=256)
    ]
    return torch.cat(right).float().mean().item()


for m in (1, 2):
    torch.manual_seed(0)
    gist = GIST(GraphClassifier, widths=128, sub_gcns=m)
    loop = Loop(gist, args.rounds, lambda model: accuracy(model, val))
    for round in loop:
        for sub in round:
            train_an_epoch(sub)
    print(f"m = {m}: test accuracy {accuracy(loop.best_model(), test):.1%}")
