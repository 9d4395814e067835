"""Scores of `gistgnn train` with its defaults, with those of earlier versions, and of ordinary training."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

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


def train(dataset: str, options: list[str], data_root: str, seed: int) -> dict[str, Any]:
    """Return the result.json of a run of the command."""
    with TemporaryDirectory() as folder:
        command = ["train", "--dataset", dataset, *DATASETS.get(dataset, ()), *options, "--seed", str(seed)]
        where = ["--data-root", data_root, "--out", f"{folder}/run", "--json"]
        done = subprocess.run([sys.executable, "-m", "gistgnn", *command, *where], stdout=subprocess.PIPE, check=True)
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def row(dataset: str, name: str, records: list[dict[str, Any]]) -> str:
    """Return a row of the table: scores in per cent, mean and standard deviation over the seeds."""
    best, last = (
        [run["test"]["accuracy"] * 100 for run in records],
        [run["last"]["test"]["accuracy"] * 100 for run in records],
    )
    first = records[0]
    shares = [run["coverage"]["counts"].get("0", 0.0) for run in records]
    values = (mean_sd(best), mean_sd(last), f"{first['rounds']}", f"{100 * fmean(shares):.1f}")
    return f"| {dataset} | {name} | {' | '.join(values)} |"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every result.json")
    args = parser.parse_args()
    print("| graph | run | test at best validation, % | test at the end, % | rounds | never trained, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    records = {}
    for dataset in args.datasets:
        for name in args.runs:
            runs = [train(dataset, RUNS[name], args.data_root, seed) for seed in range(args.seeds)]
            records[f"{dataset}, {name}"] = runs
            print(row(dataset, name, runs), flush=True)
    if args.json:
        args.json.write_text(json.dumps(records), encoding="utf-8")


if __name__ == "__main__":
    main()
