"""Two training loops of your own: a plain one, and one with early stopping and checkpoints."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GraphSAGE

from gistgnn import GIST, Loop, Saving
from gistgnn.graphs import load

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=30)
parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
args = parser.parse_args()

graph = load("digits")


def build(width: int) -> nn.Module:
    """Return the model at a width."""
    model: nn.Module = GraphSAGE(graph.num_features, width, 3, graph.num_classes, dropout=0.2)
    return model


def train(model: nn.Module, steps: int = 10) -> None:
    """Take a few steps: any optimiser, any loss, any number of them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(graph.x, graph.edge_index)
        F.cross_entropy(out[graph.train], graph.y[graph.train], label_smoothing=0.1).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, nodes: Tensor) -> float:
    """Return the share of some nodes whose class is right."""
    right = model(graph.x, graph.edge_index).argmax(dim=1) == graph.y
    return right[nodes].float().mean().item()


# The plain loop. At the end of each round the narrow models are written back into the full one.
gist = GIST(build, widths=256, sub_gcns=4)
for round in gist.rounds(args.rounds):
    for sub in round:  # a GraphSAGE of width 64, in training mode
        train(sub)
test_accuracy = accuracy(gist.model(), graph.test)
print(f"plain loop: test accuracy {test_accuracy:.1%} after {args.rounds} rounds")

# The same with `Loop`. After Ctrl-C, the script goes on from the last checkpoint.
gist = GIST(build, widths=256, sub_gcns=4)
saving = Saving(args.checkpoints, every=5, resume=True)
loop = Loop(gist, args.rounds, lambda model: accuracy(model, graph.val), patience=8, saving=saving)
for round in loop:
    for sub in round:
        train(sub)
test_accuracy = accuracy(loop.best_model(), graph.test)
progress = loop.progress
rounds = f"round {progress.best_round} of {progress.rounds}"
print(f"Loop: test accuracy {test_accuracy:.1%} at {rounds}")
