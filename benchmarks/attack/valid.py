"""Valid graphs and finished runs, which the cases change."""

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
from benchmarks.attack.valid_folders import prepare_folders
from benchmarks.kills import digest

_TRAIN = "train --hidden 8 8 --sub-gcns 2 --epochs 40 --local-steps 1 --device cpu --seed 1 --checkpoint-every 2"
RUNS = {
    "run": "",
    "ensemble": "--method ensemble",
    "gat": "--model gat --heads 2 --sampler neighbor --fanout 2",
    "stopped": "--optimizer-state carry",
    "stopped-disk": "--store disk --optimizer-state carry",
}
"""Options by the name of a run's folder."""

STOPPED = ("stopped", "stopped-disk")
"""The runs that are there as a signal has left them, with a checkpoint."""

_LIMIT = 120.0  # seconds
_NEED_ONE = {"options", "files", "streams"}  # kinds of cases that need the first run


def words_of(name: str) -> list[str]:
    """Return the command line of a run, without its data set and its folder."""
    return [*_TRAIN.split(), *RUNS[name].split()]


def arrays(nodes: int = 40, classes: int = 3) -> dict[str, Any]:
    """Return a graph, as `gistgnn.graphs.load_file` reads it: a ring whose labels can be read off the features."""
    rng, ring = np.random.default_rng(0), np.arange(nodes)
    y = ring % classes
    ends = np.stack([ring, (ring + classes) % nodes])
    x = np.eye(classes)[y] + 0.1 * rng.standard_normal((nodes, classes))
    third = nodes // 3
    splits = {"train": ring[:third], "val": ring[third : 2 * third], "test": ring[2 * third :]}
    return {"edge_index": np.hstack([ends, ends[::-1]]), "x": x.astype(np.float32), "y": y, **splits}


def data() -> Any:
    """Return the same graph as a `Data`."""
    import torch
    from torch_geometric.data import Data

    graph = {name: torch.from_numpy(value) for name, value in arrays().items()}
    nodes = len(graph["y"])
    masks = {f"{name}_mask": torch.zeros(nodes, dtype=torch.bool) for name in ("train", "val", "test")}
    for name, mask in masks.items():
        mask[graph[name.removesuffix("_mask")]] = True
    return Data(x=graph["x"], edge_index=graph["edge_index"].contiguous(), y=graph["y"], **masks)


def prepare(folder: Path, kinds: Collection[str]) -> None:
    """Write the graphs, and the runs that some kinds of cases need, into a folder.

    Beside every run NAME, NAME.json has what it must give.
    """
    import torch

    folder.mkdir()
    np.savez(folder / "own.npz", **arrays())
    torch.save(data(), folder / "own.pt")
    for suffix in ("", ".npz", ".pt"):
        os.mkfifo(folder / f"pipe{suffix}")
    if "folders" in kinds:
        prepare_folders(folder)
    needed = set(RUNS) if {"damage", "kills"} & set(kinds) else {"run"} if _NEED_ONE & set(kinds) else set()
    for name in (name for name in RUNS if name in needed):
        _prepare_run(folder, name)


def _prepare_run(folder: Path, name: str) -> None:
    words = [*words_of(name), "--dataset", "own.npz", "--out", name]
    begun = time.monotonic()
    _succeed(Forked(gistgnn(words), folder).outcome(_LIMIT), words)
    known = {"seconds": time.monotonic() - begun, "model": digest(folder / name)}
    evaluate = ["evaluate", name, "--device", "cpu", "--json"]
    known["scores"] = json.loads(_succeed(Forked(gistgnn(evaluate), folder).outcome(_LIMIT), evaluate).out)
    (folder / f"{name}.json").write_text(json.dumps(known), encoding="utf-8")
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
        raise SystemExit(f"{' '.join(words)} ends with {outcome.status} after Ctrl-C: {outcome.err}")


def _succeed(outcome: Outcome, words: list[str]) -> Outcome:
    if outcome.status:
        raise SystemExit(f"{' '.join(words)} ends with {outcome.status}: {outcome.err}")
    return outcome
