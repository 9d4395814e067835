"""Scores of `gistgnn train` with its defaults, with m = 4, and with earlier defaults.

    python -m benchmarks.defaults --data-root ../shared/data --seeds 3
    python -m benchmarks.defaults --data-root ../shared/data --seeds 3 --datasets cora citeseer \\
        --train-nodes 300 1000

The earlier defaults are those that small graphs had. With ``--train-nodes``, random splits stand
for the published one: as many training nodes, 400 for validation. Finished runs stay in ``--out``.
The same command goes on where it was stopped.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.command import trained_once
from gistgnn.graphs import load, save_file
from gistgnn.utils.formats import mean_sd

ON_CLUSTERS = ("--model", "graphsage", "--sampler", "clusters")
ON_CLUSTERS += ("--clusters", "300", "--epochs", "40")
DATASETS: dict[str, tuple[str, ...]] = {
    "digits": (),
    "cora": (),
    "citeseer": (),
    "amazon-computers": (),
    "synthetic:amazon2m@0.02": ON_CLUSTERS,
}
BEFORE = {"sub-gcns": "4", "sampler": "full", "epochs": "400", "dropout": "0.5", "norm": "none"}
RUNS: dict[str, list[str]] = {
    "defaults": [],
    "m = 4": ["--sub-gcns", "4"],
    "before": [f"--{name}={value}" for name, value in BEFORE.items()],
}


def split_at_random(dataset: str, root: str, train: int, folder: Path) -> str:
    """Write a graph with a random split, and return its file's name."""
    graph = load(dataset, root)
    masks = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    for mask, nodes in zip(masks, order.tensor_split([train, train + 400]), strict=True):
        mask[nodes] = True
    path = folder / f"{dataset}-{train}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(replace(graph, train=masks[0], val=masks[1], test=masks[2]), path)
    return str(path)


def row(dataset: str, name: str, records: list[dict[str, Any]]) -> str:
    """Return a row of the table: scores in per cent, mean and standard deviation over the seeds."""
    best = mean_sd([100 * run["test"]["accuracy"] for run in records])
    last = mean_sd([100 * run["last"]["test"]["accuracy"] for run in records])
    never_trained = 100 * fmean(run["coverage"]["never_trained"] for run in records)
    rounds = records[0]["rounds"]
    return f"| {dataset} | {name} | {best} | {last} | {rounds} | {never_trained:.1f} |"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument(
        "--train-nodes", type=int, nargs="+", default=[0], help="0: the published split"
    )
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/defaults"),
        metavar="FOLDER",
        help="the finished runs",
    )
    args = parser.parse_args(words)
    tests = "test at best validation, % | test at the end, %"
    print(f"| graph | run | {tests} | rounds | never trained, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dataset, train in product(args.datasets, args.train_nodes):
        file = split_at_random(dataset, args.data_root, train, args.out) if train else dataset
        for name in args.runs:
            options = ["--dataset", file, *DATASETS[dataset], *RUNS[name]]
            options += ["--data-root", args.data_root]
            records = []
            for seed in range(args.seeds):
                line = [*options, "--seed", str(seed)]
                records.append(trained_once(line, args.out / "runs.json"))
            print(row(f"{dataset} {train or ''}", name, records), flush=True)


if __name__ == "__main__":
    main()
