"""Two ranks, of which one has another setting or another graph: both refuse, and soon."""

import socket
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack.case import Place, Report, fault, shown
from benchmarks.attack.process import Forked, gistgnn
from benchmarks.attack.valid import arrays

_TRAIN = "train --dataset own.npz --hidden 8 8 --sub-gcns 2 --epochs 4 --device cpu --timeout 20 --out out"
_OTHER = [
    "--lr 0.03", "--dropout 0.1", "--weight-decay 0.01", "--precision bf16", "--schedule step", "--local-steps 2",
    "--epochs 5", "--patience 3", "--evaluate-every 2", "--inductive", "--seed 7", "--hidden 8 16", "--sub-gcns 4",
    "--model graphsage", "--norm layer", "--optimizer adamw", "--optimizer-state reset", "--training each",
    "--clip-norm 1", "--redraw-every 2", "--cross-weights zero", "--label-smoothing 0.1", "--class-weights balanced",
    "--metric f1_macro", "--sampler neighbor", "--runner fused", "--no-standardise", "--standardise",
    "--partition categorical", "--partition-dims 1", "--checkpoint-every 3", "--resume", "--evaluation layers",
    "--max-seconds 60", "--overwrite", "--epochs x", "--heads 2", "--device cuda:7", "--clusters 3",
]  # fmt: skip
_SOON = 15.0  # seconds; the machine may be busy


def ranks(rng: Random, place: Place) -> Report:
    """Train on two ranks that differ in one setting, or in one array of their graph."""
    words, port = _TRAIN.split(), _free_port()
    other = rng.choice([*_OTHER, "", "graph", "graph", "graph", "graph"])
    folders = [place.own / "a", place.own / "b"]
    note = other
    for folder in folders:
        folder.mkdir()
        np.savez(folder / "own.npz", **arrays())
    if other == "graph":
        note = _change_graph(rng, folders[1] / "own.npz")
    more = [] if other == "graph" else other.split()
    processes = [
        Forked(gistgnn([*words, *own]), folder, **_told(rank, port))
        for rank, (folder, own) in enumerate(zip(folders, ([], more), strict=True))
    ]
    outcomes = [process.outcome(place.limit) for process in processes]
    statuses, expected = [outcome.status for outcome in outcomes], 2 if other else 0
    wrong = next((text for outcome in outcomes if (text := fault(outcome) if outcome.err else "")), "")
    if not wrong and statuses != [expected] * 2 and not _may_differ(other):
        wrong = f"the ranks end with {statuses}, expected {expected}: {outcomes[0].err[-200:]!r}"
    slowest = max(outcome.seconds for outcome in outcomes)
    if not wrong and slowest > _SOON:
        wrong = f"the ranks refuse after {slowest:.0f} s"
    return Report(f"two ranks: gistgnn {shown(words)}; rank 1: {note}", wrong, statuses[0], slowest)


def _may_differ(option: str) -> bool:
    """Whether the option gives what the other rank has by default."""
    return option in ("--standardise", "--evaluation layers", "--overwrite", "--resume", "--max-seconds 60")


def _change_graph(rng: Random, path: Any) -> str:
    graph = arrays()
    name = rng.choice(list(graph))
    if name == "x":
        graph["x"][rng.randrange(40), rng.randrange(3)] += rng.choice([1.0, 1e-6])
    elif name == "edge_index":
        graph["edge_index"] = graph["edge_index"][:, : -rng.choice([1, 2, 10])]
    elif name == "y":
        graph["y"] = graph["y"].copy()
        graph["y"][rng.randrange(40)] = rng.choice([0, 1, 2])
        if (graph["y"] == arrays()["y"]).all():
            graph["y"][0] = 1
    else:
        graph[name] = graph[name][:-1]
    np.savez(path, **graph)
    return f"another {name}"


def _told(rank: int, port: int) -> dict[str, str]:
    """What torchrun would tell a rank by its environment; each takes itself to be alone on its machine."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    names = {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "attack", "TORCHELASTIC_MAX_RESTARTS": "0"}
    return {**names, **{name: str(value) for name, value in told.items()}}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
