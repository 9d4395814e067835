"""Valid graphs, folders and finished runs, which the cases change.

Beside every run NAME, NAME.json has its results.
"""

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.process import Forked, Outcome, gistgnn
from benchmarks.kills import digest

RUNS = {  # options by the name of a run's folder
    "run": "",
    "ensemble": "--method ensemble",
    "gat": "--model gat --set heads=2 --sampler neighbor --fanout 2",
    "stopped": "--set optimizer_state=carry",
    "stopped-disk": "--store disk --set optimizer_state=carry",
    "stopped-parts": "--method parts",
}
# Runs that a signal has ended, and that can be resumed from a checkpoint.
STOPPED = ("stopped", "stopped-disk", "stopped-parts")
GRAPHS = {"graph": "convert own.npz graph"}
CLUSTERS = {
    "clusters": "partition --dataset graph --clusters 5 --method random --out clusters",
    "streamed": "partition --dataset graph --clusters 5 --method stream --out streamed",
}
_TRAIN = (
    "train --hidden 8 8 --sub-gcns 2 --epochs 40 --local-steps 1 --device cpu --seed 1 "
    "--checkpoint-every 2"
)
_FROM_DISK = (
    "--sampler clusters --clusters-per-batch 2 "
    "--model graphsage --hidden 8 8 --sub-gcns 2 --epochs 6"
)
_LIMIT = 120.0  # seconds


def words_of(name: str) -> list[str]:
    """Return the command line of a run, by its name or that of its folder of clusters.

    The folder of the run, --out, is not in it.
    """
    if name in RUNS:
        return [*_TRAIN.split(), *RUNS[name].split(), "--dataset", "own.npz"]
    return ["train", "--dataset", name, *_FROM_DISK.split(), "--device", "cpu"]


def run_on(clusters: str) -> str:
    """Return the name of the run that was trained on a folder of clusters."""
    return f"{clusters}-from-disk"


def arrays(nodes: int = 40, classes: int = 3) -> dict[str, Any]:
    """Return the arrays of a graph file: a ring whose labels can be read off the features."""
    rng = np.random.default_rng(0)
    ring = np.arange(nodes)
    y = ring % classes
    ends = np.stack([ring, (ring + classes) % nodes])
    x = np.eye(classes)[y] + 0.1 * rng.standard_normal((nodes, classes))
    third = nodes // 3
    splits = {"train": ring[:third], "val": ring[third : 2 * third], "test": ring[2 * third :]}
    return {
        "edge_index": np.hstack([ends, ends[::-1]]),
        "x": x.astype(np.float32),
        "y": y,
        **splits,
    }


def data() -> Any:
    """Return the same graph as a `Data`."""
    import torch
    from torch_geometric.data import Data

    graph = {name: torch.from_numpy(value) for name, value in arrays().items()}
    masks = {
        f"{name}_mask": torch.isin(torch.arange(40), graph[name])
        for name in ("train", "val", "test")
    }
    return Data(x=graph["x"], edge_index=graph["edge_index"].contiguous(), y=graph["y"], **masks)


def prepare(folder: Path, kinds: Collection[str]) -> None:
    """Write the graphs, and the folders and runs that some kinds of cases need, into a folder."""
    import torch

    folder.mkdir()
    np.savez(folder / "own.npz", **arrays())
    torch.save(data(), folder / "own.pt")
    for suffix in ("", ".npz", ".pt"):
        os.mkfifo(folder / f"pipe{suffix}")
    if "folders" in kinds:
        for line in (*GRAPHS.values(), *CLUSTERS.values()):
            _succeed(folder, line.split())
        for name in CLUSTERS:
            _prepare_run(folder, run_on(name), words_of(name))
    needed = {"run"} if {"options", "files", "streams"} & set(kinds) else set()
    for name in RUNS if {"damage", "kills", "changed"} & set(kinds) else needed:
        _prepare_run(folder, name, words_of(name))


def _prepare_run(folder: Path, name: str, words: list[str]) -> None:
    begun = time.monotonic()
    words = [*words, "--out", name]
    _succeed(folder, words)
    results: dict[str, Any] = {"seconds": time.monotonic() - begun, "model": digest(folder / name)}
    evaluated = _succeed(folder, ["evaluate", name, "--device", "cpu", "--json"])
    results["scores"] = json.loads(evaluated.out)
    _succeed(folder, ["predict", name, "--device", "cpu", "--output", "predicted.csv"])
    results["predicted"] = hashlib.sha256((folder / "predicted.csv").read_bytes()).hexdigest()
    (folder / "predicted.csv").unlink()
    (folder / f"{name}.json").write_text(json.dumps(results), encoding="utf-8")
    if name in STOPPED:
        shutil.rmtree(folder / name)
        _stop(folder, name, words)


def _stop(folder: Path, name: str, words: list[str]) -> None:
    """Start a run, and end it by Ctrl-C when it has a checkpoint."""
    process = Forked(gistgnn(words), folder)
    while not list((folder / name).glob("checkpoints/*/state.json")) and not process.wait(0.01):
        pass
    process.send(signal.SIGINT)
    outcome = process.outcome(_LIMIT)
    if outcome.status != 130:
        raise SystemExit(
            f"{' '.join(words)} ends with {outcome.status} after Ctrl-C: {outcome.err}"
        )


def _succeed(folder: Path, words: list[str]) -> Outcome:
    outcome = Forked(gistgnn(words), folder).outcome(_LIMIT)
    if outcome.status:
        raise SystemExit(f"{' '.join(words)} ends with {outcome.status}: {outcome.err}")
    return outcome


def wrong_result(
    command: str, folder: Path, out: Path, valid: Path, run: str, outcome: Outcome
) -> str:
    """Say whether a command that succeeded gave another result than with undamaged files, or ""."""
    expected = json.loads((valid / f"{run}.json").read_text(encoding="utf-8"))
    if command == "evaluate":
        same = json.loads(outcome.out) == expected["scores"]
    elif command == "predict":
        predicted = hashlib.sha256((folder / "out.csv").read_bytes()).hexdigest()
        same = predicted == expected["predicted"]
    else:
        same = digest(out) == expected["model"]
    return "" if same else f"accepts a damaged file, and {command} gives another result"
