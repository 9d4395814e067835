"""The start of `gistgnn train`: seconds to its first line, and to the end of its first round, of one step.

python -m benchmarks.start --repeat 5
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from benchmarks.tables import describe_machine, on, quartiles, spread, table

ENDS = {"first line": "gistgnn: ", "first step done": "round 1/1"}  # with what these lines begin


def main() -> None:
    """Start the command several times, its standard error a pipe, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dataset", default="digits")
    options = parser.parse_args()
    print(f"# Start\n\n{on(describe_machine(len(os.sched_getaffinity(0)), 'cpu'))}; {options.dataset}\n")
    runs = [started(options.dataset) for _ in range(options.repeat + 1)][1:]  # the first reads files from the disk
    print(table(["", "seconds"], [[name, spread(quartiles([run[name] for run in runs]))] for name in ENDS]))


def started(dataset: str) -> dict[str, float]:
    """Return the seconds from the start of the process until it has said each of `ENDS`."""
    words = ["train", "--dataset", dataset, "--sub-gcns", "4", "--epochs", "4", "--local-steps", "1", "--overwrite"]
    with tempfile.TemporaryDirectory() as out:
        begun, seconds = time.perf_counter(), dict[str, float]()
        command = [sys.executable, "-m", "gistgnn", *words, "--out", out]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            for line in process.stderr:
                for name, begin in ENDS.items():
                    if line.startswith(begin):
                        seconds.setdefault(name, time.perf_counter() - begun)
    return seconds


if __name__ == "__main__":
    main()
