"""Kills convert, partition and training from the disk at random times, and runs the same commands again.

    python -m benchmarks.disk_kills --kills 20

Each command is killed (SIGKILL) and run again until it ends. Then the graph folder, the folder of clusters and the
trained model are compared, byte for byte, with those of an unbroken run.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "convert": "convert synthetic:papers100m@{size} {folder}/graph --memory 1",
    "partition": "partition --dataset {folder}/graph --clusters 100 --method stream --memory 2 --out {folder}/clusters",
    "train": "train --dataset {folder}/clusters --sampler clusters --model graphsage --hidden 64 64 --sub-gcns 2 "
    "--epochs 4 --local-steps 5 --checkpoint-every 1 --out {folder}/run --resume",
}
MADE = {"convert": "graph", "partition": "clusters", "train": "run"}


def main() -> None:
    """Run the chain unbroken, then with kills until there are enough, and compare."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.disk_kills",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--size", default="0.002", help="fraction of the graph in the shape of ogbn-papers100M")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times")
    parser.add_argument("--folder", type=Path, default=Path("runs/disk-kills"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    shutil.rmtree(options.folder, ignore_errors=True)
    rng, killed, different = random.Random(options.seed), dict.fromkeys(COMMANDS, 0), 0
    place = options.folder / "work"
    place.mkdir(parents=True)
    lengths = {name: unbroken(name, place, options.size) for name in COMMANDS}
    expected = {name: digest(place / made) for name, made in MADE.items()}
    print("unbroken: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in lengths.items()), flush=True)
    while sum(killed.values()) < options.kills:
        shutil.rmtree(place)
        place.mkdir()
        for name, length in lengths.items():
            after = with_kills(name, place, options.size, length, rng)
            killed[name] += len(after)
            same = digest(place / MADE[name]) == expected[name]
            different += not same
            left = [path.name for path in place.iterdir() if path.name.startswith(".gistgnn-")]
            different += bool(left)
            print(
                f"{name} killed after {', '.join(after) or 'nothing'}: {'the same' if same else 'ANOTHER'}"
                f"{f', LEFT BEHIND {left}' if left else ''}",
                flush=True,
            )
    print(f"kills: {killed}; {different} results that differ")
    sys.exit(different > 0)


def launch(name: str, folder: Path, size: str) -> "subprocess.Popen[bytes]":
    """Start a command; its output goes to a file."""
    words = COMMANDS[name].format(folder=folder, size=size).split()
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "gistgnn", *words], stdout=log, stderr=log)


def unbroken(name: str, folder: Path, size: str) -> float:
    """Run a command, and return its seconds."""
    start = time.perf_counter()
    if launch(name, folder, size).wait():
        raise SystemExit((folder / f"{name}.log").read_text())
    return time.perf_counter() - start


def with_kills(name: str, folder: Path, size: str, length: float, rng: random.Random) -> list[str]:
    """Kill a command up to three times, then run it to its end; return when it was killed."""
    after: list[str] = []
    while True:
        process, patience = launch(name, folder, size), rng.uniform(0.15, 1.0) * length
        try:
            status = process.wait(patience if len(after) < 3 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            after.append(f"{patience:.1f} s")
            if name != "train" and (folder / MADE[name]).exists():  # killed when all was written
                return after
            continue
        if status:
            raise SystemExit((folder / f"{name}.log").read_text())
        return after


def digest(made: Path) -> str:
    """Return a digest of what a command has made: the model of a run, or the arrays that a folder's manifest names."""
    found, manifest = hashlib.sha256(), made / "manifest.json"
    names = json.loads(manifest.read_text())["arrays"] if manifest.exists() else {}
    for path in [made / f"{name}.npy" for name in sorted(names)] or [made / "model.safetensors"]:
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    main()
