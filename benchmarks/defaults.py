"""Scores of `gistgnn train` with its defaults, with those of earlier versions, and of ordinary training.

    python -m benchmarks.defaults --data-root ../shared/data --seeds 3

Finished runs stay in ``--out``. The same command goes on where it was stopped.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.command import trained_once
from gistgnn.utils.formats import mean_sd

ON_CLUSTERS = ("--model", "graphsage", "--sampler", "clusters", "--clusters", "300", "--epochs", "40")
DATASETS: dict[str, tuple[str, ...]] = {
    "digits": (),
    "cora": (),
    "citeseer": (),
    "amazon-computers": (),
    "synthetic:amazon2m@0.02": ON_CLUSTERS,
}
BEFORE = {"local-steps": "20", "optimizer-state": "reset", "schedule": "constant", "lr": "0.01", "norm": "none"}
RUNS: dict[str, list[str]] = {
    "earlier defaults": ["--no-standardise", *(f"--{name}={value}" for name, value in BEFORE.items())],
    "defaults": [],
    "m = 8": ["--sub-gcns", "8"],
    "m = 1": ["--sub-gcns", "1"],
}


def row(dataset: str, name: str, records: list[dict[str, Any]]) -> str:
    """Return a row of the table: scores in per cent, mean and standard deviation over the seeds."""
    last = [run["last"] for run in records]
    scores = [mean_sd([100 * run["test"]["accuracy"] for run in runs]) for runs in (records, last)]
    shares = [run["coverage"]["counts"].get("0", 0.0) for run in records]
    values = (*scores, f"{records[0]['rounds']}", f"{100 * fmean(shares):.1f}")
    return f"| {dataset} | {name} | {' | '.join(values)} |"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"), metavar="FOLDER", help="the finished runs")
    args = parser.parse_args(words)
    print("| graph | run | test at best validation, % | test at the end, % | rounds | never trained, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dataset in args.datasets:
        for name in args.runs:
            words = ["--dataset", dataset, *DATASETS[dataset], *RUNS[name], "--data-root", args.data_root]
            seeds = ([*words, "--seed", str(seed)] for seed in range(args.seeds))
            runs = [trained_once(each, args.out / "runs.json") for each in seeds]
            print(row(dataset, name, runs), flush=True)


if __name__ == "__main__":
    main()
