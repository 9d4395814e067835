"""Compares the planned peak of memory with the measured one, for runs whose memory different things fill.

    python -m benchmarks.plan [--data-root DIR] [--only N ...]

Every run is a `gistgnn train` in its own process. Measured is the most anonymous memory that it holds: mapped files are
the system's cache, and not counted by the plan. Prints a Markdown table.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time

from gistgnn.utils.process_memory import held_bytes

WIDE = ("--dataset", "digits", "--model", "graphsage", "--norm", "layer")
COMPUTERS = ("--dataset", "amazon-computers")
PART = ("--dataset", "synthetic:amazon2m@0.02", "--model", "graphsage", "--norm", "layer")
TENTH = ("--dataset", "synthetic:amazon2m@0.1", "--model", "graphsage")
RANDOM = ("--sampler", "clusters", "--cluster-method", "random")

# What fills the memory: m and the options of the run. Each has two rounds: the second also holds what the first leaves.
CASES: dict[str, tuple[int, tuple[str, ...]]] = {
    "parameters, the baseline": (1, (*WIDE, "--hidden", "4096", "4096", "--epochs", "2", "--local-steps", "1")),
    "parameters, m sub-GCNs": (
        8,
        (*WIDE, "--hidden", "8192", "8192", *RANDOM, "--clusters", "40", "--epochs", "8", "--local-steps", "2"),
    ),
    "activations, fused": (
        8,
        (*COMPUTERS, "--hidden", "1024", "1024", "--runner", "fused", "--epochs", "32", "--local-steps", "2"),
    ),
    "activations, attention": (
        1,
        (*COMPUTERS, "--model", "gat", "--hidden", "256", "--epochs", "4", "--local-steps", "2"),
    ),
    "the graph": (
        2,
        (
            *TENTH,
            "--hidden",
            "16",
            *RANDOM,
            "--clusters",
            "1500",
            "--inductive",
            "--local-steps",
            "150",
            "--epochs",
            "4",
        ),
    ),
    "evaluation": (
        8,
        (*PART, "--hidden", "512", "512", *RANDOM, "--clusters", "300", "--local-steps", "15", "--epochs", "8"),
    ),
    "a sub-GCN, Θ in files": (
        2,
        (
            *WIDE,
            "--hidden",
            "8192",
            "8192",
            "--epochs",
            "4",
            "--local-steps",
            "1",
            "--store",
            "disk",
        ),
    ),
    "m sub-GCNs, fused, Θ in files": (
        4,
        (
            *WIDE,
            "--hidden",
            "8192",
            "8192",
            "--epochs",
            "8",
            "--local-steps",
            "1",
            "--runner",
            "fused",
            "--store",
            "disk",
        ),
    ),
}


def peak_of(*command: str) -> int:
    """Run a command of gistgnn, and return the most anonymous memory that it holds at a time, in bytes."""
    with subprocess.Popen([sys.executable, "-m", "gistgnn.cli.main", *command], stderr=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, held_bytes(process.pid))
            time.sleep(0.004)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return peak


def run_json(*command: str) -> dict[str, object]:
    """Run a command of gistgnn and return the JSON that it prints."""
    line = [sys.executable, "-m", "gistgnn.cli.main", *command, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def compare(m: int, options: tuple[str, ...]) -> tuple[int, int, str]:
    """Return the planned and the measured peak in bytes, and the phase of the planned one."""
    store = () if "--store" in options else ("--store", "memory")
    plan = run_json("plan", *options, "--sub-gcns", str(m), *store, "--no-measure")
    option = plan["options"][0]  # type: ignore[index]
    with tempfile.TemporaryDirectory() as out:
        measured = peak_of("train", *options, "--sub-gcns", str(m), "--out", f"{out}/run")
    return option["peaks"]["cpu"], measured, option["phase"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases, from 1")
    args = parser.parse_args()
    print("| memory filled by | m | planned, MiB | in its phase | measured, MiB | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for number, (name, (m, options)) in enumerate(CASES.items(), start=1):
        if args.only is None or number in args.only:
            planned, measured, phase = compare(m, (*options, "--data-root", args.data_root))
            cells = (name, m, f"{planned / 2**20:,.0f}", phase, f"{measured / 2**20:,.0f}", f"{planned / measured:.2f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
