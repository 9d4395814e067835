"""Compares the planned times of a step and of an evaluation with those of a run, and with a
budget's time of a step.

    python -m benchmarks.plan_times [--turns 3] [--cpu-time] [--only N ...]

Plan, budget and run take turns in one process; a ratio is the median of the turns. The first round
of a run is left out: it takes two more passes with the fused runner. Prints a Markdown table.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.neighbors import kneighbors_graph

from gistgnn.cli.main import make_parser
from gistgnn.cli.plan import trials_of
from gistgnn.cli.training_options import config_from_args
from gistgnn.estimate import Resources, make_plan
from gistgnn.fit.trials import widths_of_part
from gistgnn.graphs import Graph, load
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig

# Every run has three or four rounds, and an evaluation after each.
SAGE = "--model graphsage --hidden 512 512"
GAT = "--model gat --hidden 128 128"
WHOLE = "--epochs 9 --local-steps 3 --evaluate-every 1"
CLUSTERS = "--sampler clusters --set cluster_method=random --evaluate-every 1"
SMALL = f"{SAGE} {CLUSTERS} --clusters 100 --epochs 2 --local-steps 5"
LARGE = (
    f"--dataset synthetic:amazon2m@0.02 {SAGE} {CLUSTERS} --clusters 300 --epochs 1 "
    "--local-steps 10"
)

# m and the options of a run; the graph is that of `nearest_neighbours` unless it is named.
CASES = {
    "GraphSAGE, m = 1, whole graph": (1, f"{SAGE} {WHOLE}"),
    "GraphSAGE, m = 4, whole graph": (4, f"{SAGE} {WHOLE}"),
    "GraphSAGE, m = 4, whole graph, fused": (4, f"{SAGE} {WHOLE} --runner fused"),
    "GraphSAGE, m = 1, clusters": (1, SMALL),
    "GraphSAGE, m = 4, clusters": (4, SMALL),
    "GAT, m = 1, whole graph": (1, f"{GAT} {WHOLE}"),
    "GAT, m = 4, whole graph": (4, f"{GAT} {WHOLE}"),
    "GCN, m = 1, whole graph": (1, f"--model gcn --hidden 512 512 {WHOLE}"),
    "evaluation by layers": (8, f"{LARGE} --evaluation layers"),
    "evaluation by layers, in files": (8, f"{LARGE} --evaluation layers --evaluation-memory 0.25"),
    "evaluation by parts": (8, f"{LARGE} --evaluation parts --set parts=100"),
}


def nearest_neighbours(path: Path, nodes: int = 20_000) -> None:
    """Write a graph of nodes with 10 neighbours each, and the reverse edges."""
    x, y = make_classification(
        nodes, 64, n_informative=24, n_redundant=10, n_classes=10, random_state=0
    )
    near = kneighbors_graph(x, 10)
    split = np.random.default_rng(0).permutation(nodes) * 5 // nodes  # three fifths train
    masks = {"train": split < 3, "val": split == 3, "test": split == 4}
    np.savez(
        path,
        x=x.astype("f4"),
        y=y,
        edge_index=np.stack((near + near.T).nonzero()).astype("i8"),
        **masks,
    )


def seconds_of_run(config: RunConfig, graph: Graph) -> tuple[float, float]:
    """Train some rounds; return the seconds of a step, as `plan` counts it, and of an
    evaluation.
    """
    totals: list[dict[str, Any]] = []
    record = SimpleNamespace(on_round_end=lambda run, loss: totals.append({**run.progress.seconds}))
    config.fit(
        config.trainer(graph.num_features, graph.num_classes),
        graph,
        progress=False,
        callbacks=[record],
    )
    train, evaluate = (
        (totals[-1][name] - totals[0][name]) / (len(totals) - 1) for name in ("train", "evaluate")
    )
    return train / (config.training.local_steps or 1) / (
        1 if config.runner == "fused" else config.sub_gcns
    ), evaluate


def measured_by_budget(config: RunConfig, graph: Graph, m: int) -> float:
    """Return the seconds of a step of one of m parts, as a run with a budget measures them."""
    trials = trials_of(config, graph, 1.0)
    gist = trials.runs.setup.gist
    return trials.step_seconds(trials.runs.model(widths_of_part(gist, m), gist.seed))


def turn(config: RunConfig, graph: Graph) -> list[float]:
    """Return seconds: a step planned, as a budget measures it, and of a run; an evaluation planned,
    and of a run.
    """
    sizes = GraphSizes.of_graph(graph)
    m = config.sub_gcns
    planned = (
        make_plan(config, sizes, Resources.here("cpu"), [m], ["memory"]).options[0].seconds or {}
    )
    step, evaluation = seconds_of_run(config, graph)
    budget = float("nan") if config.runner == "fused" else measured_by_budget(config, graph, m)
    return [planned["step"], budget, step, planned["evaluation"], evaluation]


def row(name: str, turns: list[list[float]]) -> str:
    """Return a row of the table."""
    ratios = [
        (step / own, budget / own, scored / other) for step, budget, own, scored, other in turns
    ]
    step, budget, evaluation = (
        f"{median(own):.2f}".replace("nan", "–") for own in zip(*ratios, strict=True)
    )
    times = [f"{1e3 * median(own):.3g}" for own in zip(*turns, strict=True)]
    return (
        f"| {name} | {times[0]} | {times[2]} | {step} | {budget} | {times[3]} | {times[4]} | "
        f"{evaluation} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--cpu-time", action="store_true", help="of one thread, for a machine with other work"
    )
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases, from 1")
    args = parser.parse_args()
    if args.cpu_time:
        torch.set_num_threads(1)
        time.perf_counter = time.thread_time
    print(
        "| run | step planned, ms | measured | ratio | budget's ratio | evaluation planned, ms | "
        "measured | ratio |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with TemporaryDirectory() as folder:
        nearest_neighbours(Path(folder, "graph.npz"))
        for number, (name, (m, options)) in enumerate(CASES.items(), start=1):
            if args.only is None or number in args.only:
                words = [
                    "train",
                    "--dataset",
                    f"{folder}/graph.npz",
                    *options.split(),
                    "--set",
                    "training=each",
                ]
                config = config_from_args(
                    make_parser().parse_args([*words, "--sub-gcns", f"{m}"]), m
                )
                graph = load(config.dataset)
                print(row(name, [turn(config, graph) for _ in range(args.turns)]), flush=True)


if __name__ == "__main__":
    main()
