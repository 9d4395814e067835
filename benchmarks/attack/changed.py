"""Files that change behind a run, which must resume as the same run, or be refused unharmed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack.case import Outcome, Report, Workspace, run_command
from benchmarks.attack.valid import STOPPED, words_of
from benchmarks.kills import digest

Arrays = dict[str, np.ndarray]


def _label(rng: Random, graph: Arrays) -> None:
    node = rng.randrange(len(graph["y"]))
    graph["y"][node] = (graph["y"][node] + 1) % 3


def _feature(rng: Random, graph: Arrays) -> None:
    graph["x"][rng.randrange(len(graph["x"])), rng.randrange(3)] += rng.choice([1.0, 1e-3, -5.0])


def _noise(rng: Random, graph: Arrays) -> None:
    graph["x"][:] = np.random.default_rng(rng.randrange(100)).standard_normal(graph["x"].shape)


def _edge(rng: Random, graph: Arrays) -> None:
    edge = rng.randrange(graph["edge_index"].shape[1])
    source, target = graph["edge_index"][:, edge]
    other = source + 1 if source + 1 != target else source + 2
    graph["edge_index"][0, edge] = other % len(graph["x"])


def _split(rng: Random, graph: Arrays) -> None:
    one, other = rng.sample(["train", "val", "test"], 2)
    node = int(graph[one][0])
    graph[one][0] = graph[other][0]
    graph[other][0] = node


def _weights(rng: Random, graph: Arrays) -> None:
    graph["edge_weight"] = np.full(graph["edge_index"].shape[1], rng.choice([0.5, 2.0]), np.float32)


def _permuted(rng: Random, graph: Arrays) -> None:
    """Move features and labels to other nodes; edges, degrees and counts stay as they were."""
    order = np.roll(np.arange(len(graph["y"])), rng.choice([1, 2]))
    graph["x"] = graph["x"][order]
    graph["y"] = graph["y"][order]


_CHANGES: dict[str, Callable[[Random, Arrays], None]] = {
    "a label": _label,
    "a feature": _feature,
    "all features": _noise,
    "an edge": _edge,
    "the splits": _split,
    "edge weights": _weights,
    "the nodes' places": _permuted,
}
_OPTIONS = ("--dropout 0.9", "--set activation=elu", "--norm batch", "--lr 0.5", "--seed 2")
_OPTIONS += ("--optimizer sgd", "--weight-decay 0.1", "--no-standardise", "--schedule constant")
_OPTIONS += ("--set clip_norm=0.1",)


def changed(rng: Random, workspace: Workspace) -> Report:
    """Resume a run whose graph or settings were changed, or whose graph was only written again."""
    name = rng.choice([*STOPPED, "run"])
    out = workspace.folder / "out"
    shutil.copytree(workspace.valid / name, out)
    path = workspace.folder / "own.npz"
    words = [*words_of(name), "--out", "out", "--resume"]
    kind = rng.choice(["graph", "graph", "option", "written again"])
    change = kind
    if kind == "option":
        change = rng.choice(_OPTIONS)
        words = [*words, *change.split()]
    else:
        with np.load(path) as archive:
            graph = {key: archive[key].copy() for key in archive.files}
        path.unlink()
        if kind == "graph":
            change = rng.choice(list(_CHANGES))
            _CHANGES[change](rng, graph)
        np.savez_compressed(path, **graph)
    before = _contents(out)
    expected = json.loads((workspace.valid / f"{name}.json").read_text(encoding="utf-8"))["model"]

    def judge(outcome: Outcome) -> str:
        if kind == "written again":
            same = outcome.status == 0 and digest(out) == expected
            return "" if same else f"does not go on with the same graph: {outcome.err[-200:]!r}"
        if outcome.status == 0:
            return "resumes a run of another graph or of other settings"
        return "" if _contents(out) == before else "refuses, and changes the files of the run"

    return run_command(workspace, words, judge, f"{name}: {change}")


def _contents(folder: Path) -> dict[str, Any]:
    """Return the files of a run, but for its lock."""
    contents = {}
    for path in folder.rglob("*"):
        if path.is_file() and "lock" not in path.name:
            contents[str(path.relative_to(folder))] = path.read_bytes()
    return contents
