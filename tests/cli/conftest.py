import contextlib
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .in_process import run

Cli = Callable[..., subprocess.CompletedProcess[str]]
Json = Callable[..., Any]

TRAIN = (
    *("train", "--dataset", "own.npz", "--hidden", 8, 8, "--sub-gcns", 2, "--out", "run"),
    *("--epochs", 10, "--set", "training=each", "--local-steps", 5),
)
"""Trains two sub-GCNs on `own_graph` in a moment."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `gistgnn` in an empty directory, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def completed(*args: object) -> subprocess.CompletedProcess[str]:
        out = io.StringIO()
        err = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(*args)
        return subprocess.CompletedProcess(args, status, out.getvalue(), err.getvalue())

    return completed


@pytest.fixture
def as_json(cli: Cli) -> Json:
    """Run `gistgnn ... --json`, which has to succeed, and return what it prints."""

    def printed(*args: object) -> Any:
        completed = cli(*args, "--json")
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    return printed


def arrays(nodes: int = 40, classes: int = 3) -> dict[str, np.ndarray]:
    """A small graph of one's own: a ring whose labels can be read off the features."""
    rng = np.random.default_rng(0)
    y = np.arange(nodes) % classes
    ring = np.arange(nodes)
    source = np.concatenate([ring, (ring + classes) % nodes])
    target = np.concatenate([(ring + classes) % nodes, ring])
    x = np.eye(classes)[y] + 0.1 * rng.standard_normal((nodes, classes))
    third = nodes // 3
    return {
        "edge_index": np.stack([source, target]),
        "x": x.astype(np.float32),
        "y": y,
        "train": ring[:third],
        "val": ring[third : 2 * third],
        "test": ring[2 * third :],
    }


@pytest.fixture
def own_graph(tmp_path: Path) -> Path:
    path = tmp_path / "own.npz"
    np.savez(path, **arrays())
    return path
