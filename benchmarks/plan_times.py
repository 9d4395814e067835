"""Compares the planned time of an evaluation with the measured one, for the ways to evaluate.

    python -m benchmarks.plan_times [--data-root DIR] [--only N ...]

Every run is a `gistgnn train` in its own process; result.json says how long its evaluations took together. Prints a
Markdown table.
"""

import argparse
import tempfile

from benchmarks.plan import COMPUTERS, PART, RANDOM, run_json

LARGE = (*PART, "--hidden", "512", "512", *RANDOM, "--clusters", "300", "--epochs", "2")

# Every run has few rounds and an evaluation after each.
CASES: dict[str, tuple[int, tuple[str, ...]]] = {
    "whole graph, small": (4, ("--dataset", "digits", "--hidden", "256", "256", "--epochs", "1600")),
    "whole graph, GCN": (8, (*COMPUTERS, "--hidden", "1024", "1024", "--epochs", "80", "--local-steps", "1")),
    "whole graph, attention": (
        4,
        (*COMPUTERS, "--model", "gat", "--hidden", "128", "--epochs", "40", "--local-steps", "1"),
    ),
    "by layers, in memory": (8, (*LARGE, "--evaluation", "layers")),
    "by layers, in files": (8, (*LARGE, "--evaluation", "layers", "--evaluation-memory", "0.25")),
    "by parts": (8, (*LARGE, "--evaluation", "parts", "--parts", "100")),
}


def compare(m: int, options: tuple[str, ...]) -> tuple[float, float]:
    """Return the planned and the measured seconds of an evaluation."""
    plan = run_json("plan", *options, "--sub-gcns", str(m), "--store", "memory")
    with tempfile.TemporaryDirectory() as out:
        result = run_json("train", *options, "--sub-gcns", str(m), "--out", f"{out}/run")
    measured = result["seconds"]["evaluate"] / len(result["history"])  # type: ignore[index,arg-type]
    return plan["options"][0]["seconds"]["evaluation"], measured  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases, from 1")
    args = parser.parse_args()
    print("| evaluation | planned, s | measured, s | ratio |")
    print("| --- | --- | --- | --- |")
    for number, (name, (m, options)) in enumerate(CASES.items(), start=1):
        if args.only is None or number in args.only:
            planned, measured = compare(m, (*options, "--data-root", args.data_root))
            print(f"| {name} | {planned:.3g} | {measured:.3g} | {planned / measured:.2f} |", flush=True)


if __name__ == "__main__":
    main()
