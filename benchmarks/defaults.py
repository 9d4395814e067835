"""Scores of `gistgnn train` with its defaults, with those of earlier versions, and of ordinary training.

Every run is written down at once. The same command goes on where it was stopped.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.runs_file import FILE, append, read
from gistgnn.errors import InputError
from gistgnn.storage.whole_files import check_writable
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
        command = ["train", "--dataset", dataset, *DATASETS[dataset], *options, "--seed", str(seed)]
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


def record_of(dataset: str, name: str, seed: int, data_root: str, out: Path) -> dict[str, Any]:
    """Return the result.json of a run: the one in the folder, or that of a run which trains now."""
    run = {"dataset": dataset, "options": [*DATASETS[dataset], *RUNS[name]], "seed": seed}
    for done in read(out / FILE):
        if all(done[key] == value for key, value in run.items()):
            record: dict[str, Any] = done["result"]
            return record
    record = train(dataset, RUNS[name], data_root, seed)
    append(out / FILE, {**run, "result": record})
    print(f"{dataset}, {name}, seed {seed} is done", file=sys.stderr, flush=True)
    return record


def main(words: Sequence[str] | None = None) -> None:
    """Train what is not yet in the folder, and print the table as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"), metavar="FOLDER", help="the finished runs")
    args = parser.parse_args(words)
    try:
        check_writable(args.out)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    print("| graph | run | test at best validation, % | test at the end, % | rounds | never trained, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dataset in args.datasets:
        for name in args.runs:
            runs = [record_of(dataset, name, seed, args.data_root, args.out) for seed in range(args.seeds)]
            print(row(dataset, name, runs), flush=True)


if __name__ == "__main__":
    main()
