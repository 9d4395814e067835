"""Compares the planned peak of memory with the measured one.

    python -m benchmarks.plan [--data-root DIR] [--only N ...]

Every run is a `gistgnn train` in its own process; in each, something else fills most of the memory.
Measured is the most anonymous memory that it holds: mapped files are the system's cache, and not
counted by the plan. Prints a Markdown table.
"""

import argparse
import subprocess
import sys
import tempfile
import time

from benchmarks.command import json_of
from gistgnn.utils.process_memory import held_bytes

WIDE = "--dataset digits --model graphsage --norm layer"
COMPUTERS = "--dataset amazon-computers"
PART = "--dataset synthetic:amazon2m@0.02 --model graphsage --norm layer"
TENTH = "--dataset synthetic:amazon2m@0.1 --model graphsage"
RANDOM = "--sampler clusters --set cluster_method=random"
DISK = "--local-steps 1 --store disk"

BASELINE = f"{WIDE} --hidden 4096 4096 --epochs 2 --local-steps 1"
SUB_GCNS = f"{WIDE} --hidden 8192 8192 {RANDOM} --clusters 40 --epochs 8 --local-steps 2"
FUSED = f"{COMPUTERS} --hidden 1024 1024 --runner fused --epochs 32 --local-steps 2"
ATTENTION = f"{COMPUTERS} --model gat --hidden 256 --epochs 4 --local-steps 2"
GRAPH = f"{TENTH} --hidden 16 {RANDOM} --clusters 1500 --inductive --local-steps 150 --epochs 4"
EVALUATION = f"{PART} --hidden 512 512 {RANDOM} --clusters 300 --local-steps 15 --epochs 8"

# What fills the memory: m and the options of the run. Each has two rounds, as the second also holds
# what the first leaves.
CASES = {
    "parameters, the baseline": (1, BASELINE),
    "parameters, m sub-GCNs": (8, SUB_GCNS),
    "activations, fused": (8, FUSED),
    "activations, attention": (1, ATTENTION),
    "the graph": (2, GRAPH),
    "evaluation": (8, EVALUATION),
    "a sub-GCN, Θ in files": (2, f"{WIDE} --hidden 8192 8192 --epochs 4 {DISK}"),
    "m sub-GCNs, fused, Θ in files": (
        4,
        f"{WIDE} --hidden 8192 8192 --epochs 8 --runner fused {DISK}",
    ),
}


def peak_of(*command: str) -> int:
    """Run a command of gistgnn; return the most bytes of anonymous memory that it has at a time."""
    line = [sys.executable, "-m", "gistgnn", *command]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, held_bytes(process.pid))
            time.sleep(0.004)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return peak


def compare(m: int, options: list[str]) -> tuple[int, int, str]:
    """Return the planned and the measured peak in bytes, and the stage of the planned one."""
    store = () if "--store" in options else ("--store", "memory")
    plan = json_of("plan", *options, "--sub-gcns", str(m), *store, "--no-measure")
    option = plan["options"][0]
    with tempfile.TemporaryDirectory() as out:
        measured = peak_of("train", *options, "--sub-gcns", str(m), "--out", f"{out}/run")
    return option["peaks"]["cpu"], measured, option["stage"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases, from 1")
    args = parser.parse_args()
    print("| memory filled by | m | planned, MiB | at its stage | measured, MiB | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for number, (name, (m, options)) in enumerate(CASES.items(), start=1):
        if args.only is None or number in args.only:
            planned, measured, stage = compare(m, [*options.split(), "--data-root", args.data_root])
            planned_cells = f"{planned / 2**20:,.0f} | {stage}"
            measured_cells = f"{measured / 2**20:,.0f} | {planned / measured:.2f}"
            print(f"| {name} | {m} | {planned_cells} | {measured_cells} |", flush=True)


if __name__ == "__main__":
    main()
