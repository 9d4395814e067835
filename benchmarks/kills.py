"""Kills a run with Θ in files at random times, resumes it, and compares what it ends with with an unbroken run's model.

    python -m benchmarks.kills --kills 20

A run is resumed and killed again until it comes to its end; then another one starts.
"""

import argparse
import hashlib
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

OPTIONS = "--model graphsage --sub-gcns 8 --epochs 48 --local-steps 1 --optimizer-state carry"
OPTIONS += " --store mapped --evaluate-every 2"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=3072, metavar="D", help="of both layers")
    parser.add_argument("--seed", type=int, default=0, help="of the times")
    parser.add_argument("--folder", type=Path, default=Path("runs/kills"))
    options = parser.parse_args()
    command = [str(Path(sys.executable).with_name("gistgnn")), "train", *OPTIONS.split()]
    command += ["--hidden", str(options.hidden), str(options.hidden)]
    shutil.rmtree(options.folder, ignore_errors=True)
    started = time.perf_counter()
    subprocess.run([*command, "--out", str(options.folder / "whole")], check=True, capture_output=True)
    length, whole = time.perf_counter() - started, digest(options.folder / "whole")
    print(f"unbroken: {length:.1f} s", flush=True)
    rng, killed, different = random.Random(options.seed), 0, 0
    while killed < options.kills:
        out = options.folder / "cut"
        shutil.rmtree(out, ignore_errors=True)
        after = to_its_end([*command, "--out", str(out), "--resume"], rng, length)
        killed, different = killed + len(after), different + (digest(out) != whole)
        print(f"killed after {after} s: {'the same' if digest(out) == whole else 'ANOTHER'} model", flush=True)
    print(f"{killed} kills, {different} runs with another model")
    sys.exit(different > 0)


def to_its_end(command: list[str], rng: random.Random, length: float) -> list[float]:
    """Run a command until it ends by itself; the seconds after which it was killed before that."""
    after: list[float] = []
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        patience = rng.uniform(4, 4 + 0.7 * length)
        try:
            _, error = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            after.append(round(patience, 1))
            continue
        if process.returncode:
            raise SystemExit(error)
        return after


def digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
