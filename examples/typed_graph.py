"""Nodes and edges of several types: modules, classes and functions of Python packages.

The model learns to which package a module belongs.
"""

import argparse
import ast
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import RGCNConv
from torch_geometric.transforms import RandomNodeSplit, ToUndirected

from gistgnn import GIST
from gistgnn.graphs import from_hetero

PACKAGES = ("matplotlib", "networkx", "scipy", "sklearn", "torch_geometric")
TYPES = {ast.Module: "module", ast.ClassDef: "class", ast.FunctionDef: "function"}
SYNTAX = [*ast.stmt.__subclasses__(), *ast.expr.__subclasses__()]

parser = argparse.ArgumentParser()
parser.add_argument("--files", type=int, default=80, help="of each package")
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()
features: dict[str, list[list[int]]] = defaultdict(list)
edges: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
labels: list[int] = []


def add(node: ast.AST) -> int:
    """Add a node with what it defines, and return its number.

    Its features are how often each kind of syntax occurs in it.
    """
    kind = TYPES[type(node)]
    counts = Counter(map(type, ast.walk(node)))
    features[kind].append([counts[syntax] for syntax in SYNTAX])
    number = len(features[kind]) - 1
    for child in ast.iter_child_nodes(node):
        if type(child) in TYPES:
            edges[kind, "defines", TYPES[type(child)]].append((number, add(child)))
    return number


for label, package in enumerate(PACKAGES):
    spec = find_spec(package)
    assert spec is not None
    folder = Path(str(spec.origin)).parent
    paths = sorted(folder.rglob("[!_]*.py"))[-args.files :]
    trees = {path.stem: ast.parse(path.read_text()) for path in paths}
    numbers = {name: add(tree) for name, tree in trees.items()}
    labels += [label] * len(trees)
    for name, tree in trees.items():
        # The node of `from package.other import name` has the attribute module, "package.other".
        used = {str(getattr(part, "module", "")).split(".")[-1] for part in ast.walk(tree)}
        for other in used & numbers.keys():
            edges["module", "imports", "module"].append((numbers[name], numbers[other]))


class RGCN(nn.Module):
    """Two layers with weights for every type of edge."""

    def __init__(self, width: int) -> None:
        super().__init__()
        kinds = len(data.edge_types)
        classes = len(PACKAGES)
        self.conv1 = RGCNConv(joined.num_features, width, kinds)
        self.conv2 = RGCNConv(width, classes, kinds)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Return a score for each package: [nodes, packages]."""
        return self.conv2(self.conv1(x, edge_index, edge_type).relu(), edge_index, edge_type)


data = HeteroData(
    {kind: {"x": torch.tensor(rows).float().log1p()} for kind, rows in features.items()}
)
for kind, pairs in edges.items():
    data[kind].edge_index = torch.tensor(pairs).t()
data["module"].y = torch.tensor(labels)
torch.manual_seed(0)  # for the random split
data = RandomNodeSplit(num_val=0.2, num_test=0.2)(ToUndirected()(data))  # messages go both ways
joined = from_hetero(data)  # the features of all types side by side, and the type of every edge
result = GIST(RGCN, widths=64, sub_gcns=2).fit(data, epochs=args.epochs, progress=False)
tested = data["module"].y[data["module"].test_mask]
one_package = tested.bincount().max() / len(tested)
print(f"test accuracy {result.test['accuracy']:.1%}; always one package: {one_package:.1%}")
