"""Kills runs at random times, resumes them, and compares the final model with an uninterrupted run's model.

    python -m benchmarks.kills --kills 20                     # one process with Θ on disk; another process resumes
    python -m benchmarks.kills --kills 20 --ranks 4           # one of four ranks; torchrun starts them again
    python -m benchmarks.kills --kills 20 --ranks 4 --then 2  # all four ranks at half time; two ranks resume

Without ranks, a run is resumed and killed again until it ends. With ranks, every run is killed once.
"""

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

TRAIN = ["train", "--model", "graphsage", "--sub-gcns", "8", "--optimizer-state", "carry", "--evaluate-every", "2"]
ALONE = ["--epochs", "48", "--local-steps", "1", "--store", "disk"]
RANKS = ["--epochs", "8000", "--local-steps", "5", "--store", "sharded", "--checkpoint-every", "3"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kills",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=3072, metavar="D", help="width of both layers")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times")
    parser.add_argument("--ranks", type=int, default=0, metavar="W", help="ranks; 0: one process without torchrun")
    parser.add_argument("--then", type=int, metavar="W", help="kill all ranks at half time and resume with W ranks")
    parser.add_argument("--folder", type=Path, default=Path("runs/kills"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    rng, killed, different = random.Random(options.seed), 0, 0
    words = [*TRAIN, *(RANKS if options.ranks else ALONE), "--hidden", *[str(options.hidden)] * 2, "--resume"]
    started = time.perf_counter()
    run = launch(words, options.folder / "whole", options.ranks)
    if run.wait():
        raise SystemExit((options.folder / "whole.log").read_text())
    length, whole = time.perf_counter() - started, digest(options.folder / "whole")
    print(f"uninterrupted: {length:.1f} s", flush=True)
    while killed < options.kills:
        out = options.folder / "cut"
        shutil.rmtree(out, ignore_errors=True)
        if options.then:
            after = halved(words, out, options.ranks, options.then, length * rng.uniform(0.4, 0.6))
        elif options.ranks:
            after = one_rank_less(words, out, options.ranks, length * rng.uniform(0.05, 0.95), rng)
        else:
            after = to_its_end(words, out, rng, length)
        killed, different = killed + len(after), different + (digest(out) != whole)
        print(f"killed after {', '.join(after)}: {'the same' if digest(out) == whole else 'ANOTHER'} model", flush=True)
    print(f"{killed} kills, {different} runs with another model")
    sys.exit(different > 0)


def launch(words: list[str], out: Path, ranks: int) -> "subprocess.Popen[bytes]":
    """Start a run. Its output goes to a file beside its directory."""
    own = Path(sys.executable)
    start = [str(own.with_name("gistgnn"))]
    if ranks:
        restarts = ["--nproc-per-node", str(ranks), "--max-restarts", "5"]
        start = [str(own.with_name("torchrun")), "--standalone", *restarts, "-m", "gistgnn"]
    with out.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([*start, *words, "--out", str(out)], stdout=log, stderr=log)


def to_its_end(words: list[str], out: Path, rng: random.Random, length: float) -> list[str]:
    """Run and kill repeatedly until the run ends by itself. Return the times of the kills."""
    after: list[str] = []
    while True:
        process, patience = launch(words, out, 0), rng.uniform(4, 4 + 0.7 * length)
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            after.append(f"{patience:.1f} s")
            continue
        return after if not status else failed(out)


def one_rank_less(words: list[str], out: Path, ranks: int, patience: float, rng: random.Random) -> list[str]:
    """Kill one rank after some seconds; torchrun starts all ranks again."""
    process = launch(words, out, ranks)
    time.sleep(patience)
    while not (running := workers(process.pid)):
        if process.poll() is not None:
            return ["its end"] if not process.returncode else failed(out)
        time.sleep(0.05)
    rank, worker = rng.choice(running)
    worker.kill()
    where = newest(out)
    return [f"{patience:.1f} s (rank {rank}, {where})"] if not process.wait() else failed(out)


def halved(words: list[str], out: Path, ranks: int, fewer: int, patience: float) -> list[str]:
    """Kill all ranks after some seconds and resume with fewer ranks."""
    process = launch(words, out, ranks)
    time.sleep(patience)
    for target in [process, *(worker for _, worker in workers(process.pid))]:
        target.kill()
    process.wait()
    where = newest(out)
    return [f"{patience:.1f} s ({where})"] if not launch(words, out, fewer).wait() else failed(out)


def workers(torchrun: int) -> list[tuple[int, psutil.Process]]:
    """Return the processes of the ranks by rank number; there may be none at the moment."""
    running = []
    for child in psutil.Process(torchrun).children():
        with contextlib.suppress(psutil.Error):  # it is ending
            if rank := child.environ().get("RANK"):
                running.append((int(rank), child))
    return running


def newest(out: Path) -> str:
    """Return the last checkpoint at this time."""
    return max((path.parent.name for path in out.glob("checkpoints/*/state.json")), default="before any checkpoint")


def failed(out: Path) -> list[str]:
    raise SystemExit(out.with_suffix(".log").read_text())


def digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
