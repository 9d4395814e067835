"""Compares the planned times of a step and of an evaluation with those of a run.

    python -m benchmarks.plan_times [--turns 3] [--cpu-time] [--only N ...]

The time of a step that a budget measures is beside them. Plan, budget and run take turns in one
process; a ratio is the median of the turns. The first round of a run is left out: it takes two more
passes with the fused runner. Prints a Markdown table.
"""

import argparse
import time
from collections.abc import Sequence
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
    nearest = kneighbors_graph(x, 10)
    edge_index = np.stack((nearest + nearest.T).nonzero()).astype("i8")
    fifth = np.random.default_rng(0).permutation(nodes) * 5 // nodes
    masks = {"train": fifth < 3, "val": fifth == 3, "test": fifth == 4}
    np.savez(path, x=x.astype("f4"), y=y, edge_index=edge_index, **masks)


def seconds_of_run(config: RunConfig, graph: Graph) -> tuple[float, float]:
    """Train some rounds; return the seconds of a step, as `plan` counts it, and of evaluations."""
    totals: list[dict[str, Any]] = []
    record = SimpleNamespace(on_round_end=lambda run, loss: totals.append({**run.progress.seconds}))
    gist = config.trainer(graph.num_features, graph.num_classes)
    config.fit(gist, graph, progress=False, callbacks=[record])
    train, evaluate = (
        (totals[-1][name] - totals[0][name]) / (len(totals) - 1) for name in ("train", "evaluate")
    )
    local_steps = config.training.local_steps or 1
    turns_of_round = 1 if config.runner == "fused" else config.sub_gcns
    return train / local_steps / turns_of_round, evaluate


def measured_by_budget(config: RunConfig, graph: Graph, m: int) -> float:
    """Return the seconds of a step of one of m parts, as a run with a budget measures them."""
    trials = trials_of(config, graph, 1.0)
    gist = trials.runs.setup.gist
    return trials.step_seconds(trials.runs.model(widths_of_part(gist, m), gist.seed))


def turn(config: RunConfig, graph: Graph) -> list[float]:
    """Return five times in seconds, of one turn.

    Of a step: as planned, as a budget measures it, and of a run. Of an evaluation: as planned, and
    of a run.
    """
    sizes = GraphSizes.of_graph(graph)
    m = config.sub_gcns
    plan = make_plan(config, sizes, Resources.here("cpu"), [m], ["memory"])
    planned = plan.options[0].seconds or {}
    step, evaluation = seconds_of_run(config, graph)
    budget = float("nan") if config.runner == "fused" else measured_by_budget(config, graph, m)
    return [planned["step"], budget, step, planned["evaluation"], evaluation]


def row(name: str, turns: list[list[float]]) -> str:
    """Return a row of the table."""
    planned, by_budget, measured, evaluation_planned, evaluation_measured = zip(*turns, strict=True)
    step_cells = [in_milliseconds(planned), in_milliseconds(measured)]
    step_cells += [ratio(planned, measured), ratio(by_budget, measured)]
    evaluation_cells = [in_milliseconds(evaluation_planned), in_milliseconds(evaluation_measured)]
    evaluation_cells.append(ratio(evaluation_planned, evaluation_measured))
    return f"| {' | '.join([name, *step_cells, *evaluation_cells])} |"


def in_milliseconds(seconds: Sequence[float]) -> str:
    """Format the median of the turns in milliseconds."""
    return f"{1e3 * median(seconds):.3g}"


def ratio(seconds: Sequence[float], measured: Sequence[float]) -> str:
    """Format the median of the turns' ratios; a dash if there is nothing to compare."""
    ratios = [one / other for one, other in zip(seconds, measured, strict=True)]
    return f"{median(ratios):.2f}".replace("nan", "–")


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
    step_columns = "step planned, ms | measured | ratio | budget's ratio"
    print(f"| run | {step_columns} | evaluation planned, ms | measured | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with TemporaryDirectory() as folder:
        nearest_neighbours(Path(folder, "graph.npz"))
        for number, (name, (m, options)) in enumerate(CASES.items(), start=1):
            if args.only is None or number in args.only:
                # A --dataset among the options of the case replaces the first one.
                words = ["train", "--dataset", f"{folder}/graph.npz", *options.split()]
                words += ["--set", "training=each", "--sub-gcns", f"{m}"]
                config = config_from_args(make_parser().parse_args(words), m)
                graph = load(config.dataset)
                turns = [turn(config, graph) for _ in range(args.turns)]
                print(row(name, turns), flush=True)


if __name__ == "__main__":
    main()
