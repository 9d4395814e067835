"""PyG's GCN and GraphSAGE trained by `GIST.fit` beside ours: in turn, fused and by `auto`.

    python -m benchmarks.pyg_speed --data-root ../shared/data

They take turns. A step of all sub-GCNs is a round, with batches, optimisers and Θ, divided by ζ.
"""

import argparse
import json
import logging
import statistics
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import nn

from benchmarks.steps import seconds_of_rounds
from benchmarks.tables import describe_machine, number, on, quartiles, table
from gistgnn.graphs import Graph, load
from gistgnn.nn import GCN, GraphSAGE
from gistgnn.sampling import ClusterSampling

RUNNERS = ("in-turn", "fused", "auto")
HIDDEN_LAYERS = 2
DROPOUT = 0.5
CLUSTERS = 150
HEAD = ["model", "width", "m", "ours: in turn, fused, auto", "PyG"]
HEAD += ["auto / better: ours", "PyG", "PyG / ours"]
Samples = dict[tuple[str, str], list[float]]  # milliseconds of a step, by (whose model, runner)


def main() -> None:
    """Measure, and print a row for every setting."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pyg_speed", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--data-root", default="data")
    add("--models", nargs="+", default=["gcn", "graphsage"], choices=["gcn", "graphsage"])
    add("--widths", type=int, nargs="+", default=[256, 1024])
    add("--sub-gcns", type=int, nargs="+", default=[2, 8], metavar="M")
    add("--per-batch", type=int, default=10, metavar="Q", help=f"of {CLUSTERS} clusters in a batch")
    add("--local-steps", type=int, default=10)
    add("--repeat", type=int, default=6, help="turns")
    add("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    # The runs are short and leave parameters untrained, which gistgnn would note.
    logging.getLogger("gistgnn").setLevel(logging.ERROR)
    machine = describe_machine(torch.get_num_threads(), "cpu")
    print(f"# PyG's models and ours\n\n{on(machine)}\n\n{table(HEAD, [])}", flush=True)
    graph = load("amazon-computers", options.data_root)
    record = []
    for width, m, model in product(options.widths, options.sub_gcns, options.models):
        samples = measure(graph, model, width, m, options)
        print(f"| {' | '.join([model, str(width), str(m), *cells(samples)])} |", flush=True)
        runs = [[*contender, times] for contender, times in samples.items()]
        record.append({"model": model, "width": width, "sub_gcns": m, "runs": runs})
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "arguments": sys.argv[1:], "settings": record})
        )


def measure(graph: Graph, model: str, width: int, m: int, options: argparse.Namespace) -> Samples:
    """Return the milliseconds of a step of all sub-GCNs in each of `options.repeat` turns."""
    samples: Samples = {(whose, runner): [] for whose in ("ours", "PyG") for runner in RUNNERS}
    for _ in range(options.repeat):
        for (whose, runner), times in samples.items():
            seconds = seconds_of_rounds(
                graph,
                builder(whose, model, graph),
                width if whose == "PyG" else (width,) * HIDDEN_LAYERS,
                m,
                rounds=2,
                sampler=ClusterSampling(CLUSTERS, options.per_batch),
                runner=runner,
                local_steps=options.local_steps,
            )
            times.append(1e3 * statistics.mean(seconds) / options.local_steps)
    return samples


def builder(whose: str, model: str, graph: Graph) -> Callable[[Any], nn.Module]:
    """Return what builds a model of PyG or of ours."""
    features = graph.num_features
    classes = graph.num_classes
    if whose == "PyG":
        kind = pyg.GCN if model == "gcn" else pyg.GraphSAGE
        return lambda width: kind(features, width, HIDDEN_LAYERS + 1, classes, dropout=DROPOUT)
    ours = GCN if model == "gcn" else GraphSAGE
    return lambda widths: ours(features, widths, classes, dropout=DROPOUT, norm="none")


def cells(samples: Samples) -> list[str]:
    """Return the medians, and the ratios of turns with their quartiles."""
    medians = {contender: statistics.median(times) for contender, times in samples.items()}
    steps = []
    to_best = []
    for whose in ("ours", "PyG"):
        of_runner = {runner: medians[whose, runner] for runner in RUNNERS}
        steps.append(", ".join(number(median) for median in of_runner.values()))
        better = "in-turn" if of_runner["in-turn"] <= of_runner["fused"] else "fused"
        to_best.append(ratio(samples[whose, "auto"], samples[whose, better]))
    return [*steps, *to_best, ratio(samples["PyG", "auto"], samples["ours", "auto"])]


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> str:
    """Return how many times as long one takes as the other in the same turn.

    It is the median of the turns, with quartiles in brackets.
    """
    of_turns = quartiles([one / other for one, other in zip(mine, theirs, strict=True)])
    return f"{of_turns['median']:.2f} ({of_turns['q1']:.2f}–{of_turns['q3']:.2f})"


if __name__ == "__main__":
    main()
