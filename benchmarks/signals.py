"""Signals at random times, and two runs in one folder: what is kept, and whether a resumed run ends as an unbroken one.

python -m benchmarks.signals --times 20              # SIGTERM to one process
python -m benchmarks.signals --times 20 --ranks 2    # SIGTERM to torchrun
python -m benchmarks.signals --races 20              # two runs that start in one folder, at 20 distances of time
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.kills import digest, launch, newest
from gistgnn.cli.signals import status_of

TRAIN = ["train", "--model", "graphsage", "--hidden", "128", "128", "--sub-gcns", "8", "--optimizer-state", "carry"]
LENGTH = ["--epochs", "2400", "--local-steps", "5", "--evaluate-every", "1"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.signals",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=0, help="how many signals")
    parser.add_argument("--signal", default="SIGTERM", choices=("SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"))
    parser.add_argument("--ranks", type=int, default=0, metavar="W", help="ranks; 0: one process without torchrun")
    parser.add_argument("--races", type=int, default=0, help="how many pairs of runs in one folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times")
    parser.add_argument("--folder", type=Path, default=Path("runs/signals"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    begun, out = time.perf_counter(), options.folder / "whole"
    finished(launch([*TRAIN, *LENGTH, "--resume"], out, options.ranks), out)
    length, whole, rng = time.perf_counter() - begun, digest(out), random.Random(options.seed)
    print(f"undisturbed: {length:.1f} s", flush=True)
    failures = 0
    for _ in range(options.times):
        failures += not signalled(options, rng.uniform(0.05, 0.9) * length, whole)
    for number in range(options.races):
        failures += not raced(options.folder, number / max(options.races - 1, 1) * length, whole)
    print(f"{options.times} signals, {options.races} races, {failures} failures")
    sys.exit(failures > 0)


def signalled(options: argparse.Namespace, patience: float, whole: str) -> bool:
    """Send a signal after some seconds, resume, and return whether all went as it should."""
    out = options.folder / "cut"
    shutil.rmtree(out, ignore_errors=True)
    process, number = launch([*TRAIN, *LENGTH, "--resume"], out, options.ranks), signal.Signals[options.signal]
    time.sleep(patience)
    shown = last_round(out)  # before the signal, and so at most the round that is running
    process.send_signal(number)
    status, kept = process.wait(), newest(out)
    rounds = int(kept.removeprefix("round-")) if kept.startswith("round-") else 0
    over = is_over(out)  # the signal has come after the last round
    rightly_ended = over or (status != 0 if options.ranks else status == status_of(number))
    finished(launch([*TRAIN, *LENGTH, "--resume"], out, options.ranks), out)
    same = digest(out) == whole
    good = rightly_ended and same and (over or rounds >= shown)
    kept = "the run was over" if over else f"the checkpoint has {rounds}"
    what = f"round {shown} was shown, {kept}, {'the same' if same else 'ANOTHER'} model"
    print(f"{number.name} after {patience:.1f} s: status {status}, {what}{'' if good else ': FAILED'}", flush=True)
    return good


def raced(folder: Path, later: float, whole: str) -> bool:
    """Start two runs in one folder, the second some seconds later; return whether one wins and the other is refused."""
    out = folder / "race"
    shutil.rmtree(out, ignore_errors=True)
    out.with_suffix(".log").unlink(missing_ok=True)
    first = launch([*TRAIN, *LENGTH, "--overwrite"], out, 0)
    time.sleep(later)
    first_log = out.with_suffix(".log").rename(folder / "first.log")
    second = launch([*TRAIN, *LENGTH], out, 0)
    statuses = [first.wait(), second.wait()]
    said = [first_log.read_text(), out.with_suffix(".log").read_text()]
    loser = said[statuses.index(2)] if 2 in statuses else ""
    refusal = [line for line in loser.splitlines() if line.startswith("gistgnn: error:")]
    good = sorted(statuses) == [0, 2] and len(refusal) == 1 and digest(out) == whole
    print(f"{later:.1f} s apart: {statuses}, {refusal}{'' if good else ': FAILED'}", flush=True)
    return good


def last_round(out: Path) -> int:
    """Return the last round in the output of a run, 0 if there is none."""
    return max(map(int, re.findall(r"round (\d+)/", out.with_suffix(".log").read_text())), default=0)


def is_over(out: Path) -> bool:
    """Return whether a run has written its result after its last round."""
    path = out / "result.json"
    return path.exists() and not json.loads(path.read_text()).get("interrupted")


def finished(process: "subprocess.Popen[bytes]", out: Path) -> None:
    """Wait for the end of a run, which must be a good one."""
    if process.wait():
        raise SystemExit(out.with_suffix(".log").read_text())


if __name__ == "__main__":
    main()
