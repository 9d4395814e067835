"""`--standardise`: how features are scaled is kept with the model, and done again for whatever it is shown."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gistgnn import load_run

from .conftest import arrays
from .in_process import refused, run

TRAIN = ("train", "--hidden", 8, "--epochs", 30, "--local-steps", 5, "--sub-gcns", 2, "--training", "each")


@pytest.fixture
def graph(tmp_path: Path) -> dict[str, Any]:
    """A graph of features of very different sizes, one of them constant."""
    found = arrays()
    found["x"] = np.column_stack([found["x"] * [1e3, 1, 1e-3] + [5, 0, 0], np.full(40, 0.1)]).astype(np.float32)
    np.savez(tmp_path / "own.npz", **found)
    return found


@pytest.fixture
def trained(tmp_path: Path, graph: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Path:
    out = tmp_path / "run"
    status = run(*TRAIN, "--dataset", tmp_path / "own.npz", "--out", out)
    assert status == 0, capsys.readouterr().err
    return out


def test_evaluate_and_predict_scale_as_training_did(
    trained: Path, tmp_path: Path, graph: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    scale = load_file(trained / "features.safetensors")
    x = graph["x"][graph["train"]].astype(float)
    np.testing.assert_allclose(scale["mean"], x.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scale["std"][:3], x.std(axis=0)[:3], rtol=1e-5)
    assert scale["std"][3] == 1
    record = json.loads((trained / "result.json").read_text())
    assert record["config"]["standardise"] is None  # the features decide
    assert record["standardised"] is True
    capsys.readouterr()
    assert run("evaluate", trained, "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"] == pytest.approx(record["test"])
    np.savez(tmp_path / "new.npz", x=graph["x"], edge_index=graph["edge_index"])
    for dataset, name in ((), "own.csv"), (("--dataset", tmp_path / "new.npz"), "new.csv"):
        assert run("predict", trained, *dataset, "--output", tmp_path / name) == 0
    assert (tmp_path / "own.csv").read_text() == (tmp_path / "new.csv").read_text()
    with (tmp_path / "new.csv").open() as file:
        classes = np.array([int(row["class"]) for row in csv.DictReader(file)])
    right = (classes == graph["y"])[graph["test"]].mean()
    assert right == pytest.approx(record["test"]["accuracy"])


def test_a_run_that_is_saved_again_still_scales(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = json.loads((trained / "result.json").read_text())["test"]
    load_run(trained).save(trained, overwrite=True)
    capsys.readouterr()
    assert run("evaluate", trained, "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"] == pytest.approx(scores)


def test_another_number_of_features(
    trained: Path, tmp_path: Path, graph: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "narrow.npz", **{**graph, "x": graph["x"][:, :3]})
    message, narrow = "x has 3 features; the model was trained on 4", ("--dataset", tmp_path / "narrow.npz")
    refused(capsys, message, "evaluate", trained, *narrow)
    refused(capsys, message, "predict", trained, *narrow, "--output", tmp_path / "p.csv", leaves=tmp_path)


def test_a_missing_or_damaged_file(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained / "features.safetensors"
    for damaged in (path.read_bytes()[:40], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        refused(capsys, f"{path} ", "evaluate", trained)
        refused(capsys, f"{path} ", "predict", trained, "--output", tmp_path / "p.npz")


def test_a_run_that_replaces_it_leaves_no_file_of_it(trained: Path, tmp_path: Path) -> None:
    assert run(*TRAIN, "--dataset", tmp_path / "own.npz", "--no-standardise", "--out", trained, "--overwrite") == 0
    assert not (trained / "features.safetensors").exists()
    assert run("evaluate", trained) == 0
