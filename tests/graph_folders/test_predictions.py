"""The files of `gistgnn predict`: each prediction once, under the number that its node had before the graph was cut."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from gistgnn import load
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import save_file
from gistgnn.nn import GraphSAGE
from gistgnn.runs import prediction_files
from gistgnn.runs.prediction_files import write_predictions
from gistgnn.sampling import whole_graph
from tests.cli.in_process import run
from tests.helpers.clustered_folders import make_clustered

from .folders import put, some_graph


def outputs(nodes: int, classes: int, step: int) -> tuple[list[tuple[slice, torch.Tensor]], torch.Tensor]:
    logits = torch.randn(nodes, classes, generator=torch.Generator().manual_seed(0))
    return [(slice(k, min(k + step, nodes)), logits[k : k + step]) for k in range(0, nodes, step)], logits


@pytest.mark.parametrize(("several", "large"), [(False, False), (True, True)])
def test_pieces_are_put_together(several: bool, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(prediction_files, "_LARGE", 1)
    monkeypatch.setattr(prediction_files, "_ROWS", 7)
    numbers, (pieces, logits) = torch.randperm(50), outputs(50, 4, 9)
    scores, back = (logits.sigmoid() if several else logits.softmax(dim=1)), numbers.argsort()
    labels = (logits > 0).long() if several else logits.argmax(dim=1)
    for name in ("p.npz", "p.csv"):
        write_predictions(tmp_path / name, pieces, 50, multi_label=several, numbers=numbers)
    found = np.load(tmp_path / "p.npz")
    assert np.array_equal(found["classes"], labels[back].numpy())
    np.testing.assert_allclose(found["probabilities"], scores[back].numpy(), rtol=1e-6)
    rows = np.loadtxt(io.StringIO((tmp_path / "p.csv").read_text()), delimiter=",", skiprows=1)
    assert np.array_equal(rows[:, 0], np.arange(50))
    shown = scores[back] if several else scores.gather(1, labels.unsqueeze(1))[back]
    np.testing.assert_allclose(rows[:, 1 if several else 2 :], shown.numpy(), atol=1e-6)
    assert several or np.array_equal(rows[:, 1], labels[back].numpy())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.npz"]


def test_the_command_gives_nodes_their_old_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same, clusters = make_clustered(some_graph(120, 900), 6, tmp_path / "folder")
    save_file(same, tmp_path / "same.npz")
    options = ("--model", "graphsage", "--hidden", 8, "--sub-gcns", 2, "--epochs", 2, "--out", tmp_path / "run")
    assert run("train", "--dataset", tmp_path / "folder", "--sampler", "clusters", *options) == 0, capsys.readouterr()
    for name, dataset in (("folder", "folder"), ("memory", "same.npz")):
        words = ("--dataset", tmp_path / dataset, "--output", tmp_path / f"{name}.npz")
        assert run("predict", tmp_path / "run", *words) == 0, capsys.readouterr().err
    one, other = (np.load(tmp_path / f"{name}.npz") for name in ("folder", "memory"))
    np.testing.assert_allclose(one["probabilities"][clusters.order.numpy()], other["probabilities"], atol=1e-6)
    assert np.array_equal(one["classes"][clusters.order.numpy()], other["classes"])
    put(tmp_path / "folder" / "node.npy", 3, 7)
    words = ("--dataset", tmp_path / "folder", "--output", tmp_path / "damaged.npz")
    assert run("predict", tmp_path / "run", *words) == 2
    assert "node.npy is damaged: it does not hold every node once" in capsys.readouterr().err
    assert not (tmp_path / "damaged.npz").exists()


def test_an_evaluation_by_parts_comes_in_pieces(tmp_path: Path) -> None:
    make_clustered(some_graph(200, 2000), 7, tmp_path / "graph")
    batch, model = whole_graph(load(tmp_path / "graph")), GraphSAGE(3, (8,), 3).eval()
    inference = Evaluation("parts", parts=7).prepare(model, batch)
    with torch.no_grad():
        write_predictions(tmp_path / "p.npz", inference.outputs(model), 200, multi_label=False)
        expected = inference.logits(model)
    assert np.array_equal(np.load(tmp_path / "p.npz")["probabilities"], expected.softmax(dim=1).numpy())
