"""A plain PyG script, which knows nothing of GIST: a wide GCN on Cora."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCN

parser = argparse.ArgumentParser()
parser.add_argument("--data-root", default="data/Planetoid", help="Cora is downloaded to it")
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

data = Planetoid(args.data_root, "Cora")[0]
torch.manual_seed(0)


def train(model: nn.Module, steps: int) -> None:
    """Take so many steps of Adam on the training nodes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Return the share of the test nodes whose class is right."""
    right = model.eval()(data.x, data.edge_index).argmax(dim=1) == data.y
    return right[data.test_mask].float().mean().item()


model = GCN(data.num_features, 512, 2, 7, dropout=0.5)
train(model, args.steps)
print(f"test accuracy: {accuracy(model):.1%}")
