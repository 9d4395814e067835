"""Models of one's own on the command line: a function in a module or in a file."""

import json
from pathlib import Path

import pytest

from .in_process import refused, run

MODEL = """
import torch
from torch import nn
from torch_geometric.nn import GCNConv

from own_beside import activate

runs = []


class Net(nn.Module):
    def __init__(self, sizes, slope):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(i, o) for i, o in zip(sizes, sizes[1:]))
        self.slope = slope

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = activate(conv(x, edge_index), self.slope)
        return self.convs[-1](x, edge_index)


def build(in_features, hidden, classes, slope=0.01):
    return Net([in_features, *hidden, classes], slope)


def linear(in_features, hidden, classes):
    raise RuntimeError("no layers today")


number = 3
"""
BESIDE = "import torch.nn.functional as F\n\n\ndef activate(x, slope):\n    return F.leaky_relu(x, slope)\n"
TRAIN = ("train", "--hidden", 8, "--epochs", 8, "--local-steps", 2, "--sub-gcns", 2, "--device", "cpu")


@pytest.fixture
def folder(tmp_path: Path, own_graph: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/own_net.py").write_text(MODEL)
    (tmp_path / "code/own_beside.py").write_text(BESIDE)
    return tmp_path


def test_a_function_in_a_file_is_trained_evaluated_and_predicts(
    folder: Path, own_graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--dataset", own_graph, "--model", "code/own_net.py:build", "--model-args", "slope=0.2", "--out", "run")
    assert run(*TRAIN, *words, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["config"]["model"] == {"name": "code/own_net.py:build", "hidden": [8], "args": {"slope": 0.2}}
    assert record["coverage"]["parameters"] == 3 * 8 + 8 + 8 * 3 + 3
    refused(capsys, "give the function that builds it (--model code/own_net.py:build", "evaluate", "run")
    assert run("evaluate", "run", "--model", "code/own_net.py:build", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"] == record["test"]
    assert run("predict", "run", "--model", "code/own_net.py:build", "--output", "labels.csv") == 0
    assert "build 8" in (folder / "run/report.html").read_text()
    assert run(*TRAIN, *words, "--resume") == 0, "it is finished"
    capsys.readouterr()
    refused(capsys, "is of another run: model was", *TRAIN, *words[:-4], "--out", "run", "--resume")


def test_a_function_in_a_module_of_the_working_directory(
    folder: Path, own_graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "code")
    assert run(*TRAIN, "--dataset", own_graph, "--model", "own_net:build", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["config"]["model"]["name"] == "own_net:build"
    assert [path.name for path in (folder / "code/runs").iterdir()] == ["own-build-m2-seed0"]


def test_it_is_planned(folder: Path, own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--dataset", own_graph, "--model", "code/own_net.py:build", "--hidden", 8, "--no-measure", "--json")
    assert run("plan", *words, "--sub-gcns", 1, 2) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["parameters"] == 3 * 8 + 8 + 8 * 3 + 3
    assert {option["method"] for option in plan["options"]} == {"whole"}


def test_bad_input(folder: Path, own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = (*TRAIN, "--dataset", own_graph, "--out", "run")
    before = sorted(folder.iterdir())
    for model, message in {
        "code/nothing.py:build": "cannot be imported",
        "code/own_net.py:nothing": "cannot be imported",
        "nothing.at.all:build": "cannot be imported",
        "code/own_net.py:number": "int: expected a function of (in_features, hidden, classes)",
        "code/own_net.py:linear": "no layers today",
        "gcnx": "invalid choice: 'gcnx' (choose from gcn, graphsage, gat",
    }.items():
        refused(capsys, message, *train, "--model", model)
    own = ("--model", "code/own_net.py:build")
    refused(capsys, "dropout is given, but the model is code/own_net.py:build", *train, *own, "--dropout", 0.1)
    refused(capsys, "unexpected keyword argument 'depth'", *train, *own, "--model-args", "depth=3")
    refused(capsys, "'depth' is not a keyword with a value", *train, *own, "--model-args", "depth")
    refused(capsys, "model_args is given, but the model is gcn", *train, "--model-args", "depth=3")
    assert sorted(path for path in folder.iterdir() if path.name != "run") == before
