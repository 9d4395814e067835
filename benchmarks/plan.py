"""Compares the planned peak of memory with the measured one, for runs whose memory different things
fill.

    python -m benchmarks.plan [--data-root DIR] [--only N ...]

Every run is a `gistgnn train` in its own process. Measured is the most anonymous memory that it
holds: mapped files are the system's cache, and not counted by the plan. Prints a Markdown table.
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

# What fills the memory: m and the options of the run. Each has two rounds: the second also holds
# what the first leaves.
CASES = {
    "parameters, the baseline": (1, f"{WIDE} --hidden 4096 4096 --epochs 2 --local-steps 1"),
    "parameters, m sub-GCNs": (
        8,
        f"{WIDE} --hidden 8192 8192 {RANDOM} --clusters 40 --epochs 8 --local-steps 2",
    ),
    "activations, fused": (
        8,
        f"{COMPUTERS} --hidden 1024 1024 --runner fused --epochs 32 --local-steps 2",
    ),
    "activations, attention": (
        1,
        f"{COMPUTERS} --model gat --hidden 256 --epochs 4 --local-steps 2",
    ),
    "the graph": (
        2,
        f"{TENTH} --hidden 16 {RANDOM} --clusters 1500 --inductive --local-steps 150 --epochs 4",
    ),
    "evaluation": (
        8,
        f"{PART} --hidden 512 512 {RANDOM} --clusters 300 --local-steps 15 --epochs 8",
    ),
    "a sub-GCN, Θ in files": (2, f"{WIDE} --hidden 8192 8192 --epochs 4 {DISK}"),
    "m sub-GCNs, fused, Θ in files": (
        4,
        f"{WIDE} --hidden 8192 8192 --epochs 8 --runner fused {DISK}",
    ),
}


def peak_of(*command: str) -> int:
    """Run a command of gistgnn, and return the most anonymous memory that it holds at a time, in
    bytes.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "gistgnn", *command], stderr=subprocess.DEVNULL
    ) as process:
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
            cells = (
                name,
                m,
                f"{planned / 2**20:,.0f}",
                stage,
                f"{measured / 2**20:,.0f}",
                f"{planned / measured:.2f}",
            )
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
