"""Files that cannot be used, names that not every program can show, and training that diverges."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Cli, arrays
from .in_process import refused, run

GRAPHS: dict[str, tuple[dict[str, Any], str]] = {  # what is put in place of an array; None: nothing
    "splits overlap": ({"val": np.arange(13)}, "train and val share 13 nodes"),
    "not a number": ({"x": np.full((40, 3), np.nan)}, "x[0, 0] is nan"),
    "one row less": ({"x": np.ones((39, 3))}, "y has 40 rows and x has 39"),
    "edge out of range": ({"edge_index": np.array([[40, 1], [1, 2]])}, "edge_index[0, 0] is 40"),
    "transposed": ({"edge_index": np.zeros((80, 2), int)}, "transpose it"),
    "float edges": ({"edge_index": np.zeros((2, 80))}, "edge_index has dtype torch.float64"),
    "no edges": ({"edge_index": np.zeros((2, 0), int)}, "no edges"),
    "label out of range": ({"y": np.full(40, -2)}, "y[0] is -2"),
    "unlabelled": ({"y": np.where(np.arange(40) < 26, np.arange(40) % 3, -1)}, "test holds 14 unlabelled nodes"),
    "empty split": ({"val": np.array([], int)}, "val"),
    "no labels": ({"y": None}, "has no y"),
}


@pytest.mark.parametrize(("spoilt", "message"), GRAPHS.values(), ids=GRAPHS)
def test_graphs(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoilt: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = {name: array for name, array in {**arrays(), **spoilt}.items() if array is not None}
    np.savez(tmp_path / "own.npz", **graph)
    refused(capsys, message, "train", "--dataset", "own.npz", leaves=tmp_path)


@pytest.mark.parametrize("name", ["$x_{$", "a\nb", "\x1b[31mred", os.fsdecode(b"\xff\xfe"), "%s{}"])
def test_any_name_of_a_file_and_of_a_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / f"{name}.npz", **arrays())
    train = ("train", "--dataset", f"{name}.npz", "--hidden", 8, "--sub-gcns", 2, "--epochs", 2, "--no-standardise")
    assert run(*train, "--out", name) == 0
    assert run("evaluate", name) == 0
    assert run("predict", name, "--output", f"{name}.csv") == 0
    assert run("list", ".") == 0
    assert run(*train, "--sub-gcns", 1, "--out", "other") == 0
    assert run("compare", name, "other", "--out", f"{name}2") == 0
    out, err = capsys.readouterr()
    assert not [line for line in (out + err).split("\n") if not line.isprintable()]
    assert (tmp_path / name / "report.html").stat().st_size
    assert (tmp_path / name / "curves.png").stat().st_size


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", os.fsdecode(b"\xff\xfe"), "a" * 5000])
def test_a_message_is_one_short_line_of_plain_characters(capsys: pytest.CaptureFixture[str], name: str) -> None:
    train = ("--dataset {}.npz", "--model {}:f", "--loss {}", "--device {}", "--{}", "--epochs {}")
    for line in ("evaluate {}", "datasets {}", *(f"train {options}" for options in train)):
        assert run(*(word.replace("{}", name) for word in line.split())) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert err.rstrip("\n").isprintable()
        assert len(err) < 1000


def test_divergence_keeps_the_last_good_parameters(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["x"] *= 1e30  # finite, but the gradient is not
    np.savez(tmp_path / "huge.npz", **graph)
    words = ("--dataset", "huge.npz", "--hidden", 8, "--sub-gcns", 2, "--epochs", 80, "--no-standardise")
    done = cli("train", *words, "--optimizer", "sgd", "--lr", 1, "--out", "run")
    assert done.returncode == 2
    assert "training diverged in round 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    scored = cli("evaluate", "run")
    assert scored.returncode == 0, scored.stderr
    assert "gistgnn: note: training diverged in round 1: " in scored.stderr
    assert "this model is as it was before training, and worth nothing" in scored.stderr
    assert "The model is as it was before training." in (tmp_path / "run/report.html").read_text()
