"""Compares the planned time of an evaluation with the measured one, for the ways to evaluate.

    python -m benchmarks.plan_times [--data-root DIR] [--only N ...]

Every run is a `gistgnn train` in its own process; result.json says how long its evaluations took together. Prints a
Markdown table.
"""

import argparse

from benchmarks.command import json_of, trained
from benchmarks.plan import COMPUTERS, PART, RANDOM

LARGE = f"{PART} --hidden 512 512 {RANDOM} --clusters 300 --epochs 2"

# Every run has few rounds and an evaluation after each.
CASES = {
    "whole graph, small": (4, "--dataset digits --hidden 256 256 --epochs 1600"),
    "whole graph, GCN": (8, f"{COMPUTERS} --hidden 1024 1024 --epochs 80 --local-steps 1"),
    "whole graph, attention": (4, f"{COMPUTERS} --model gat --hidden 128 --epochs 40 --local-steps 1"),
    "by layers, in memory": (8, f"{LARGE} --evaluation layers"),
    "by layers, in files": (8, f"{LARGE} --evaluation layers --evaluation-memory 0.25"),
    "by parts": (8, f"{LARGE} --evaluation parts --parts 100"),
}


def compare(m: int, options: list[str]) -> tuple[float, float]:
    """Return the planned and the measured seconds of an evaluation."""
    plan = json_of("plan", *options, "--sub-gcns", m, "--store", "memory")
    result = trained(*options, "--sub-gcns", m)
    return plan["options"][0]["seconds"]["evaluation"], result["seconds"]["evaluate"] / len(result["history"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases, from 1")
    args = parser.parse_args()
    print("| evaluation | planned, s | measured, s | ratio |")
    print("| --- | --- | --- | --- |")
    for number, (name, (m, options)) in enumerate(CASES.items(), start=1):
        if args.only is None or number in args.only:
            planned, measured = compare(m, [*options.split(), "--data-root", args.data_root])
            print(f"| {name} | {planned:.3g} | {measured:.3g} | {planned / measured:.2f} |", flush=True)


if __name__ == "__main__":
    main()
