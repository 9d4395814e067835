"""A step of PyG's models in a loop of the user's own: sub-GCNs, which multiply, beside copies, which pass messages."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import cycle

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from benchmarks.tables import describe_machine, number, on, table
from gistgnn import GIST
from gistgnn.graphs import load
from gistgnn.graphs.clustering import cluster
from gistgnn.sampling import ClusterBatches, whole_graph

CLUSTERS, PER_BATCH, BATCHES = 150, 10, 8
Step = tuple[Tensor, Tensor]


def main() -> None:
    """Measure, and print a table."""
    options = parse()
    graph = load("amazon-computers", options.data_root)
    batches = ClusterBatches(whole_graph(graph), cluster(graph.edge_index, graph.num_nodes, CLUSTERS), PER_BATCH)
    parts = [(batch.dense, batch.edge_index) for batch in batches.batches(0, BATCHES)]
    given: dict[str, Callable[[], Iterator[Step]]] = {
        "the whole graph": lambda: cycle([(graph.x, graph.edge_index)]),
        "other tensors in each step": lambda: ((x.clone(), edges.clone()) for x, edges in cycle(parts)),
    }
    lines = []
    for kind in (pyg.GCN, pyg.GraphSAGE):
        for width in options.widths:

            def build(own: int, kind: type[nn.Module] = kind) -> nn.Module:
                return kind(graph.num_features, own, 3, graph.num_classes)

            sub = GIST(build, width, options.sub_gcns).begin_round().subs[0]
            for name, steps in given.items():
                ours, plain = seconds(sub, steps(), options.steps), seconds(deepcopy(sub), steps(), options.steps)
                lines.append([kind.__name__, str(width), name, number(1e3 * ours), number(1e3 * plain)])
                lines[-1].append(f"{plain / ours:.1f}")
                print(" | ".join(lines[-1]), flush=True)
    print(f"\n{on(describe_machine(torch.get_num_threads(), 'cpu'))}\n")
    print(table(["model", "width", "a step sees", "multiplies, ms", "passes messages, ms", "times as long"], lines))


def seconds(model: nn.Module, steps: Iterator[Step], count: int) -> float:
    """Return the seconds of a forward and a backward pass: the median, without the first."""
    found = []
    for _ in range(count + 1):
        x, edge_index = next(steps)
        model.zero_grad()
        begun = time.perf_counter()
        model(x, edge_index).square().mean().backward()
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:])


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_loop", description=__doc__)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--sub-gcns", type=int, default=8, metavar="M")
    parser.add_argument("--steps", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
