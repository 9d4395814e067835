"""Kills runs at random times, resumes them, and compares the results with unbroken ones.

    python -m benchmarks.kills --kills 20                     # one process with Θ on disk
    python -m benchmarks.kills --kills 20 --disk              # commands that work from the disk
    python -m benchmarks.kills --kills 20 --ranks 4           # one of four ranks
    python -m benchmarks.kills --kills 20 --ranks 4 --then 2  # all four at half time; two resume

Without ranks, each command is killed (SIGKILL) up to three times before it may end, and the same
command resumes it. With ranks, it is killed once, and torchrun starts all ranks again. With --disk
the commands are convert, partition, and training from the folder of clusters.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

# Commands, by the file or folder that each of them makes.
WIDE = (
    "train --model graphsage --sub-gcns 8 --set optimizer_state=carry --evaluate-every 2 "
    "--hidden {hidden} {hidden}"
)
FROM_CLUSTERS = (
    "train --dataset {folder}/clusters --sampler clusters --model graphsage --hidden 64 64 "
    "--sub-gcns 2 --epochs 4 --local-steps 5 --checkpoint-every 1"
)
PARTITION = "partition --dataset {folder}/graph --clusters 100 --method stream --memory 2"
SAVED = "--out {folder}/run --resume"
ALONE = {"run": f"{WIDE} --epochs 48 --local-steps 1 --store disk {SAVED}"}
RANKS = {
    "run": f"{WIDE} --epochs 8000 --local-steps 5 --store sharded --checkpoint-every 3 {SAVED}"
}
DISK = {
    "graph": "convert synthetic:papers100m@0.002 {folder}/graph --memory 1",
    "clusters": f"{PARTITION} --out {{folder}}/clusters",
    "run": f"{FROM_CLUSTERS} {SAVED}",
}


def main() -> None:
    """Run the commands unbroken, then with kills, and compare what they have made."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kills", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--hidden", type=int, default=3072, metavar="D", help="width of both layers"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the times")
    parser.add_argument(
        "--disk", action="store_true", help="convert, partition and train from the disk"
    )
    parser.add_argument(
        "--ranks", type=int, default=0, metavar="W", help="ranks; 0: one process without torchrun"
    )
    parser.add_argument(
        "--then", type=int, metavar="W", help="kill all ranks at half time and resume with W ranks"
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/kills"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rng = random.Random(options.seed)
    killed = 0
    different = 0
    commands = DISK if options.disk else RANKS if options.ranks else ALONE
    chain = {
        made: words.format(folder=options.folder, hidden=options.hidden)
        for made, words in commands.items()
    }
    shutil.rmtree(options.folder, ignore_errors=True)
    lengths = {
        made: seconds(words, options.folder / made, options.ranks) for made, words in chain.items()
    }
    expected = {made: digest(options.folder / made) for made in chain}
    in_words = ", ".join(f"{made} {length:.1f} s" for made, length in lengths.items())
    print(f"unbroken: {in_words}", flush=True)
    while killed < options.kills:
        shutil.rmtree(options.folder)
        for made, words in chain.items():
            after = with_kills(words, options.folder / made, lengths[made], options, rng)
            left = [path.name for path in options.folder.glob(".gistgnn-*")]
            same = digest(options.folder / made) == expected[made] and not left
            killed += len(after)
            different += not same
            verdict = "the same" if same else f"ANOTHER, left behind: {left}"
            print(f"{made}: killed after {', '.join(after) or 'nothing'}: {verdict}", flush=True)
    print(f"{killed} kills, {different} results that differ")
    sys.exit(different > 0)


def launch(words: str, out: Path, ranks: int) -> "subprocess.Popen[bytes]":
    """Start a command. Its output goes to a file beside what it makes."""
    python = Path(sys.executable)
    start = [str(python.with_name("gistgnn"))]
    if ranks:
        restarts = ["--nproc-per-node", str(ranks), "--max-restarts", "5"]
        start = [str(python.with_name("torchrun")), "--standalone", *restarts, "-m", "gistgnn"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([*start, *words.split()], stdout=log, stderr=log)


def seconds(words: str, out: Path, ranks: int) -> float:
    """Run a command to its end; return the seconds."""
    start = time.perf_counter()
    if launch(words, out, ranks).wait():
        failed(out)
    return time.perf_counter() - start


def with_kills(
    words: str, out: Path, length: float, options: argparse.Namespace, rng: random.Random
) -> list[str]:
    """Run a command with kills to its end; return when it was killed."""
    if options.then:
        return halved(words, out, options.ranks, options.then, length * rng.uniform(0.4, 0.6))
    if options.ranks:
        return one_rank_less(words, out, options.ranks, length * rng.uniform(0.05, 0.95), rng)
    after: list[str] = []
    while True:
        process = launch(words, out, 0)
        patience = rng.uniform(0.15, 1.0) * length
        try:
            status = process.wait(patience if len(after) < 3 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            after.append(f"{patience:.1f} s")
            if out.exists() and "--resume" not in words:
                return after  # All was written already, and the same command would be refused.
            continue
        return failed(out) if status else after


def one_rank_less(
    words: str, out: Path, ranks: int, patience: float, rng: random.Random
) -> list[str]:
    """Kill one rank after some seconds; torchrun starts all ranks again."""
    process = launch(words, out, ranks)
    time.sleep(patience)
    while not (running := workers(process.pid)):
        if process.poll() is not None:
            return failed(out) if process.returncode else ["its end"]
        time.sleep(0.05)
    rank, worker = rng.choice(running)
    worker.kill()
    checkpoint = newest(out)
    status = process.wait()
    return failed(out) if status else [f"{patience:.1f} s (rank {rank}, {checkpoint})"]


def halved(words: str, out: Path, ranks: int, fewer: int, patience: float) -> list[str]:
    """Kill all ranks after some seconds and resume with fewer ranks."""
    process = launch(words, out, ranks)
    time.sleep(patience)
    for target in [process, *(worker for _, worker in workers(process.pid))]:
        target.kill()
    process.wait()
    checkpoint = newest(out)
    status = launch(words, out, fewer).wait()
    return failed(out) if status else [f"{patience:.1f} s ({checkpoint})"]


def workers(torchrun: int) -> list[tuple[int, psutil.Process]]:
    """Return the processes of the ranks by rank number; there may be none at the moment."""
    running = []
    for child in psutil.Process(torchrun).children():
        with contextlib.suppress(psutil.Error):  # A process that is ending shows nothing.
            if rank := child.environ().get("RANK"):
                running.append((int(rank), child))
    return running


def newest(out: Path) -> str:
    """Return the name of the last checkpoint that a run has written."""
    names = [path.parent.name for path in out.glob("checkpoints/*/state.json")]
    return max(names, default="before any checkpoint")


def failed(out: Path) -> list[str]:
    """End with the output of a command that failed."""
    raise SystemExit(out.with_suffix(".log").read_text())


def digest(made: Path) -> str:
    """Return a digest of the model of a run, or of the arrays that a folder's manifest names."""
    content = hashlib.sha256()
    manifest = made / "manifest.json"
    paths = [made / "model.safetensors"]
    if manifest.exists():
        names = json.loads(manifest.read_text())["arrays"]
        paths = [made / f"{name}.npy" for name in sorted(names)]
    for path in paths:
        content.update(path.name.encode() + path.read_bytes())
    return content.hexdigest()


if __name__ == "__main__":
    main()
