"""Edge weights in a file reach training, evaluation and predictions on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from gistgnn.evaluation import predict
from gistgnn.graphs import load_file
from gistgnn.runs.run_folder import open_run
from gistgnn.sampling import whole_graph

from .conftest import arrays
from .in_process import run


def test_a_file_with_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = arrays()
    weight = np.random.default_rng(1).random(graph["edge_index"].shape[1]) * 3
    for name, data in (("weighted", {"edge_weight": weight}), ("plain", {})):
        np.savez(tmp_path / f"{name}.npz", **graph, **data)
        options = ("--hidden", 8, "--epochs", 6, "--sub-gcns", 2, "--local-steps", 2, "--no-standardise")
        assert run("train", "--dataset", tmp_path / f"{name}.npz", *options, "--out", tmp_path / name) == 0
        assert run("predict", tmp_path / name, "--output", tmp_path / f"{name}-out.npz") == 0
    found = [np.load(tmp_path / f"{name}-out.npz")["probabilities"] for name in ("weighted", "plain")]
    assert not np.allclose(*found)
    model = open_run(tmp_path / "weighted")[2]
    logits = predict(model, whole_graph(load_file(tmp_path / "weighted.npz")))
    np.testing.assert_allclose(found[0], logits.softmax(dim=1).numpy(), atol=1e-5)
    capsys.readouterr()
    assert run("evaluate", tmp_path / "weighted", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    record = json.loads((tmp_path / "weighted" / "result.json").read_text())
    assert scores["test"] == pytest.approx(record["test"])


def test_a_model_that_makes_no_use_of_them_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = arrays()
    np.savez(tmp_path / "graph.npz", **graph, edge_attr=np.ones((graph["edge_index"].shape[1], 2)))
    assert run("train", "--dataset", tmp_path / "graph.npz", "--hidden", 8, "--epochs", 2, "--out", tmp_path / "r") == 0
    assert "the graph has edge_attr, and GCN makes no use of it" in " ".join(capsys.readouterr().err.split())
