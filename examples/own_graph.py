"""Train on a graph of your own, in two CSV files, and write the predicted classes into a third.

nodes.csv has a row for each node: its name, its class (empty: not known), and its features.
edges.csv has a row for each edge: the names of two nodes.
"""

import argparse
import csv
from pathlib import Path

import torch

from gistgnn import GIST, Graph
from gistgnn.nn import GraphSAGE

parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=Path, default=Path("csv"), help="with nodes.csv and edges.csv")
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()


def write_a_small_graph(folder: Path) -> None:
    """Write 300 people in three groups, who mostly know people of their own group.

    The groups of the last 30 people are left empty.
    """
    rng = torch.Generator().manual_seed(0)
    groups = torch.arange(300) % 3
    folder.mkdir(parents=True)
    with open(folder / "nodes.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["person", "group", "age", "income", "distance"])
        for person, group in enumerate(groups.tolist()):
            features = torch.randn(3, generator=rng)
            features[group] += 1
            rows.writerow([f"p{person}", "" if person >= 270 else "abc"[group], *features.tolist()])
    pairs = torch.randint(300, (4000, 2), generator=rng)
    friends = (groups[pairs[:, 0]] == groups[pairs[:, 1]]) | (torch.rand(4000, generator=rng) < 0.1)
    with open(folder / "edges.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [["from", "to"], *((f"p{a}", f"p{b}") for a, b in pairs[friends].tolist())]
        )


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file below its header."""
    with open(path, newline="") as file:
        return list(csv.reader(file))[1:]


if not args.folder.exists():
    write_a_small_graph(args.folder)
nodes = read_rows(args.folder / "nodes.csv")
number = {name: i for i, (name, *_) in enumerate(nodes)}
classes = sorted({label for _, label, *_ in nodes if label})
x = torch.tensor([[float(value) for value in features] for _, _, *features in nodes])
y = torch.tensor([classes.index(label) if label else -1 for _, label, *_ in nodes])  # -1: not known
edges = torch.tensor([[number[a], number[b]] for a, b in read_rows(args.folder / "edges.csv")]).t()

labelled = (y >= 0).nonzero().squeeze(1)
labelled = labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(0))]
fifth = len(labelled) // 5
train, val, test = labelled.split([len(labelled) - 2 * fifth, fifth, fifth])
both_ways = torch.cat([edges, edges.flip(0)], dim=1)  # friends are friends in both directions
graph = Graph.build(x, both_ways, y, train=train, val=val, test=test, name="people")
print(graph)

gist = GIST(
    lambda widths: GraphSAGE(graph.num_features, widths, graph.num_classes),
    widths=(64, 64),
    sub_gcns=2,
)
result = gist.fit(graph, epochs=args.epochs, progress=False)
print(f"test accuracy: {result.test['accuracy']:.1%}")

predicted = result.model(graph.x, graph.edge_index).argmax(dim=1).tolist()
with open(args.folder / "predicted.csv", "w", newline="") as file:
    csv.writer(file).writerows(
        [["person", "group"], *([name, classes[predicted[i]]] for name, i in number.items())]
    )
