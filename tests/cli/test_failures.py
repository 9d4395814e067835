"""What fails beside the training: evaluations, metrics, reports, graphs and paths."""

import csv
import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gistgnn import load_run
from gistgnn.fit.scorer import Scorer
from gistgnn.graphs import load
from tests.helpers.refusals import full_disk

from .conftest import TRAIN, Cli, Json, arrays

OWN = """
import torch
from torch import nn
from torch_geometric.nn import SAGEConv

class Net(nn.Module):
    def __init__(self, f, widths, c):
        super().__init__()
        self.one, self.two = SAGEConv(f, widths[0]), SAGEConv(widths[0], c)

    def layers(self):
        return [lambda x, edge_index: self.one(x, edge_index).relu(), self.last]

    def last(self, x, edge_index):
        degree = torch.zeros(len(x)).index_add(0, edge_index[1], torch.ones(edge_index.shape[1]))
        return self.two(x, edge_index) + torch.where(degree > 0, 0.0, torch.nan).unsqueeze(1)

    def forward(self, x, edge_index):
        with open("sizes.txt", "a") as file:
            file.write(f"{len(x)}\\n")
        return self.last(self.one(x, edge_index).relu(), edge_index)

def build(f, widths, c):
    return Net(f, widths, c)
"""
WITH_OWN = (
    "train", "--dataset", "own.npz", "--model", "net.py:build", "--hidden", 8,
    "--epochs", 4, "--out", "own",
)  # fmt: skip


def scores_fail(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Let the evaluation of one round fail."""
    score = Scorer._score
    calls = iter(range(1, 99))

    def fails(self: Scorer) -> Any:
        if next(calls) == number:
            raise error
        return score(self)

    monkeypatch.setattr(Scorer, "_score", fails)


def attempt(cli: Cli, *words: object) -> str:
    """Run a command that fails, in whatever way; return what it says."""
    try:
        completed = cli(*words)
    except (RuntimeError, MemoryError, OSError, ValueError) as error:
        # The user sees a traceback, for a fault that is not the user's.
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    assert completed.returncode != 0
    return completed.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (1, RuntimeError("expanded size")),
        (2, MemoryError("none is left")),
        (2, ValueError("a bug")),
    ],
)
def test_an_evaluation_that_fails_leaves_the_model(
    number: int, error: BaseException, cli: Cli, own_graph: Path, tmp_path: Path
) -> None:
    unbroken = cli(*TRAIN, "--out", "whole", "--json")
    with pytest.MonkeyPatch.context() as patch:
        scores_fail(patch, number, error)
        attempt(cli, *TRAIN)
    assert json.loads((tmp_path / "run/result.json").read_text())["interrupted"] is True
    run = load_run("run")
    assert run.progress.rounds == number
    graph = load("own.npz")
    with torch.no_grad():
        guess = run.model.eval()(graph.x, graph.edge_index).argmax(dim=1)
    accuracy = (guess == graph.y)[graph.test].float().mean().item()
    scored = json.loads(cli("evaluate", "run", "--json").stdout)
    assert scored["test"]["accuracy"] == pytest.approx(accuracy)
    resumed = cli(*TRAIN, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    records = [json.loads(completed.stdout) for completed in (unbroken, resumed)]
    assert records[0]["test"] == records[1]["test"]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert models[0] == models[1]
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("file", ["report", "model", "result"])
def test_a_result_that_cannot_be_written_is_written_by_resuming(
    file: str, cli: Cli, own_graph: Path, tmp_path: Path
) -> None:
    functions = {
        "report": "gistgnn.report.pages.run_page",
        "model": "gistgnn.fit.result.write_tensors",
        "result": "gistgnn.fit.result.write_json",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions[file], lambda *_, **__: full_disk())
        attempt(cli, *TRAIN)
    assert (tmp_path / "run/checkpoints").exists()
    assert cli(*TRAIN, "--resume").returncode == 0
    assert cli("evaluate", "run").returncode == 0


def test_a_metric_that_is_not_defined_is_a_gap_for_test_nodes_and_refused_for_validation_nodes(
    cli: Cli, as_json: Json, tmp_path: Path
) -> None:
    graph = arrays()
    order = np.argsort(graph["y"], kind="stable")
    of_class_2 = order[27:]
    graph |= {
        "train": order[::3],
        "val": order[1::3],
        "test": np.setdiff1d(order[2::3], of_class_2),
    }
    np.savez(tmp_path / "own.npz", **graph)
    completed = cli(*TRAIN, "--metric", "roc_auc", "--log", "tensorboard")
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("roc_auc cannot score the test nodes") == 1
    assert "class 2" in completed.stderr
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["test"]["roc_auc"] is None
    assert record["test"]["accuracy"] is not None
    assert 0 <= record["validation"]["roc_auc"] <= 1
    assert {entry["test"] for entry in record["history"]} == {None}
    assert as_json("list", ".")[0]["test"] is None
    assert f"{record['validation']['roc_auc']:.4f} ROC AUC (validation)" in cli("list", ".").stdout
    assert load_run("run").test["roc_auc"] is None
    assert cli(*TRAIN, "--metric", "roc_auc", "--out", "other", "--seed", 1).returncode == 0
    assert "run has no roc_auc" in cli("compare", "run", "other", "--out", "page").stderr
    graph |= {"val": graph["test"], "test": graph["val"]}
    np.savez(tmp_path / "own.npz", **graph)
    completed = cli(*TRAIN, "--metric", "roc_auc", "--overwrite")
    assert completed.returncode == 2
    assert "roc_auc cannot score the validation nodes" in completed.stderr
    assert "class 2" in completed.stderr


def test_evaluation_by_layers_never_runs_a_users_model_on_the_whole_graph(
    cli: Cli, own_graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(OWN)
    assert cli(*WITH_OWN).returncode == 0
    for options in (
        ("--evaluation", "layers"),
        ("--evaluation", "parts", "--parts", 2),
        ("--evaluation-memory", "1MB"),
    ):
        for words in (("evaluate", "own"), ("predict", "own", "--output", "p.csv")):
            (tmp_path / "sizes.txt").unlink()
            assert cli(*words, "--model", "net.py:build", *options).returncode == 0
            sizes = {int(size) for size in (tmp_path / "sizes.txt").read_text().split()}
            fits = options[0] == "--evaluation-memory"  # 40 nodes take less than 1 MB
            assert (40 in sizes) == fits


def test_predictions_of_nodes_without_an_output_are_empty(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(OWN)
    graph = arrays()
    lonely = graph["test"][:2]
    graph["edge_index"] = graph["edge_index"][:, ~np.isin(graph["edge_index"][1], lonely)]
    np.savez(tmp_path / "own.npz", **graph)
    completed = cli(*WITH_OWN)
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("2 of 40 nodes") == 1
    completed = cli("predict", "own", "--model", "net.py:build", "--output", "p.csv")
    assert completed.returncode == 0
    assert f"(the first is node {lonely[0]})" in completed.stderr
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    for column in ("class", "probability"):
        assert [int(row["node"]) for row in rows if row[column] == ""] == lonely.tolist()
    completed = cli("evaluate", "own", "--model", "net.py:build")
    assert "not finite for 2 of 40 nodes" in completed.stderr


def test_a_graph_that_lacks_the_highest_class_is_scored(
    cli: Cli, as_json: Json, own_graph: Path, tmp_path: Path
) -> None:
    assert cli(*TRAIN).returncode == 0
    graph = arrays()
    splits = {name: graph[name][graph["y"][graph[name]] < 2] for name in ("train", "val", "test")}
    fewer = graph | splits | {"y": np.minimum(graph["y"], 1)}
    np.savez(tmp_path / "fewer.npz", **fewer)
    np.savez(tmp_path / "same.npz", **(graph | splits))
    scores = as_json("evaluate", "run", "--dataset", "fewer.npz")
    assert scores == as_json("evaluate", "run", "--dataset", "same.npz")
    with_another_class = np.where(np.arange(40) == 39, 3, graph["y"])
    np.savez(tmp_path / "more.npz", **(graph | {"y": with_another_class}))
    completed = cli("evaluate", "run", "--dataset", "more.npz")
    assert completed.returncode == 2
    assert "more has 4 classes, the graph of the run has 3" in completed.stderr


def test_a_tilde_after_an_equals_sign_is_the_home_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    np.savez(home / "own.npz", **arrays())
    (home / "net.py").write_text(OWN)
    short = ("--hidden", 8, "--epochs", 2, "--sub-gcns", 1)
    for words in (
        ("train", "--dataset=~/own.npz", "--out=~/run", *short),
        ("train", "--dataset=~/own.npz", "--out=~/more", "--init=~/run", *short),
        ("train", "--dataset=~/own.npz", "--out=~/own", "--model=~/net.py:build", *short),
        ("evaluate", "~/run", "--dataset=~/own.npz", "--data-root=~/data"),
        ("predict", "~/run", "--dataset=~/own.npz", "--output=~/p.csv"),
        ("predict", "~/own", "--model=~/net.py:build", "--dataset=~/own.npz", "--output=~/q.npz"),
        ("compare", "~/run", "~/more", "--out=~/page"),
        ("list", "~"),
        ("datasets", "~/own.npz"),
        ("plan", "--dataset=~/own.npz", "--hidden", 8),
    ):
        completed = cli(*words)
        assert completed.returncode == 0, (words, completed.stderr)
    assert not (tmp_path / "~").exists()
    assert {"run", "p.csv", "q.npz", "page"} <= {path.name for path in home.iterdir()}


def test_a_model_that_is_evaluated_whole_is_noted_above_the_memory_allowed(
    cli: Cli, own_graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(
        OWN.replace("def layers", "def unused").replace("torch.nan", "0.0")
    )
    completed = cli(*WITH_OWN, "--evaluation-memory", "1MB")
    assert completed.returncode == 0
    assert "whole graph at once" not in completed.stderr
    rng = np.random.default_rng(0)
    ring = np.arange(20_000)
    random_edges = rng.integers(20_000, size=(2, 40_000))
    large = {
        "x": rng.standard_normal((20_000, 3), dtype=np.float32),
        "edge_index": np.concatenate([random_edges, np.stack([ring, np.roll(ring, 1)])], axis=1),
        "y": rng.integers(3, size=20_000),
        "train": [0, 1, 2],
        "val": [3, 4, 5],
        "test": [6, 7],
    }
    np.savez(tmp_path / "own.npz", **large)
    completed = cli(
        *WITH_OWN, "--overwrite", "--evaluation-memory", "1MB", "--sampler", "clusters",
        "--clusters", 20,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("evaluation runs the whole graph at once") == 1
    assert "evaluation may take 1 MiB" in completed.stderr


def test_a_full_disk_while_predictions_are_written_leaves_no_file(
    cli: Cli, own_graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*TRAIN).returncode == 0

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gistgnn.runs.prediction_files._write_csv", full)
    completed = cli("predict", "run", "--output", "p.csv")
    assert completed.returncode == 2
    assert "No space left on device" in completed.stderr
    assert not (tmp_path / "p.csv").exists()
    assert torch.isfinite(load_run("run").model(torch.ones(1, 3), torch.empty(2, 0).long())).all()
