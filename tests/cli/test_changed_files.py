"""A data file that changes under its name is another graph, for `train --resume` and `compare`."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gistgnn.graphs import Graph, save_file
from gistgnn.runs.run_folder import read_record
from gistgnn.storage.json_files import plain, write_json
from tests.cli.in_process import refused, run
from tests.helpers.edges import weighted
from tests.helpers.models import tiny_graph

SMALL = ("--hidden", 8, "--epochs", 4, "--local-steps", 2, "--device", "cpu", "--json")
NET = """
from torch import nn
from torch_geometric.nn import SAGEConv

class Net(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.one, self.two = SAGEConv(features, hidden[0]), SAGEConv(hidden[0], classes)

    def forward(self, x, edge_index):
        return self.two(self.dropout(self.one(x, edge_index).relu()), edge_index)
"""


def other_labels(graph: Graph) -> Graph:
    return replace(graph, y=(graph.y + 1) % 3)


def other_features(graph: Graph) -> Graph:
    return replace(graph, x=graph.x.flip(1))


def fewer_training_nodes(graph: Graph) -> Graph:
    train = graph.train.clone()
    train[int(train.nonzero()[0])] = False
    return replace(graph, train=train)


CHANGES: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "labels": (other_labels, "the graph's labels differ"),
    "features": (other_features, "the graph's features differ"),
    "training nodes": (fewer_training_nodes, "the graph's training nodes differ"),
    "edge weights": (weighted, "the graph's edge weights differ"),
    "a node more": (lambda _: tiny_graph(25), "the graph's number of nodes was 24, now 25"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file, and a finished run of it."""
    folder = tmp_path_factory.mktemp("finished")
    save_file(tiny_graph(), folder / "g.npz")
    words = (*SMALL, "--sub-gcns", 2, "--out", folder / "run")
    assert run("train", "--dataset", folder / "g.npz", *words) == 0
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("change", CHANGES)
def test_a_finished_run_is_not_one_of_a_changed_file(
    change: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, message = CHANGES[change]
    save_file(changed(tiny_graph()), tmp_path / "g.npz")
    before = files_of(finished / "run")
    words = (*SMALL, "--sub-gcns", 2, "--out", finished / "run", "--resume")
    refused(capsys, message, "train", "--dataset", tmp_path / "g.npz", *words)
    assert files_of(finished / "run") == before


def test_a_finished_run_is_found_again_by_what_is_in_its_file(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(tiny_graph(), tmp_path / "renamed.npz")
    train = ("train", "--dataset", tmp_path / "renamed.npz", *SMALL, "--sub-gcns", 2)
    train = (*train, "--out", finished / "run", "--resume")
    for options in ((), ("--runner", "in-turn"), ("--store", "host"), ("--evaluation", "layers")):
        capsys.readouterr()
        assert run(*train, *options) == 0
        assert json.loads(capsys.readouterr().out)["test"] == read_record(finished / "run").test
    for option, message in {
        "--dropout 0.9": "dropout of the model",
        "--lr 0.5": "lr was",
        "--seed 3": "seed",
    }.items():
        refused(capsys, message, *train, *option.split())


def test_a_result_without_a_fingerprint_is_not_taken_for_this_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished / "run", tmp_path / "old")
    record = plain(read_record(tmp_path / "old"))
    del record["fingerprint"]
    write_json(tmp_path / "old/result.json", record)
    words = ("--sub-gcns", 2, "--out", tmp_path / "old", "--resume")
    missing = "missing required field `fingerprint`"
    refused(capsys, missing, "train", "--dataset", finished / "g.npz", *SMALL, *words)
    refused(capsys, missing, "evaluate", tmp_path / "old")


def test_a_model_whose_file_was_edited_is_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(tiny_graph(), tmp_path / "g.npz")
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited/net_edited.py").write_text(NET.replace("0.1", "0.7"))
    words = (
        "train", "--dataset", tmp_path / "g.npz", *SMALL, "--out", tmp_path / "run",
        "--resume",
    )  # fmt: skip
    assert run(*words, "--model", f"{tmp_path / 'net.py'}:Net") == 0
    assert run(*words, "--model", f"{tmp_path / 'net.py'}:Net") == 0
    edited = f"{tmp_path / 'edited/net_edited.py'}:Net"
    refused(capsys, "p of dropout was 0.1, now 0.7", *words, "--model", edited)


def records(out: Path) -> set[Path]:
    return set((out / "runs").glob("*.json"))


def compared(
    out: Path, dataset: Path, capsys: pytest.CaptureFixture[str], *m: int
) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run("compare", "--dataset", dataset, *SMALL, "--sub-gcns", *m, "--out", out) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_compare_trains_again_what_it_has_of_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "g.npz"
    out = tmp_path / "out"
    save_file(tiny_graph(), data)
    before = compared(out, data, capsys, 2)
    first_records = records(out)
    save_file(replace(other_features(tiny_graph()), y=tiny_graph().y.flip(0)), data)
    after = compared(out, data, capsys, 2)
    assert [row["score"] for row in after] != [row["score"] for row in before]
    assert first_records < records(out)
    assert len(records(out)) == 2 * len(first_records)
    save_file(tiny_graph(), data)
    shutil.copy(data, tmp_path / "moved.npz")
    assert compared(out, data, capsys, 2) == before, "the runs of the first file are still there"
    assert len(records(out)) == 2 * len(first_records)


def test_compare_trains_again_with_another_gistgnn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "g.npz"
    out = tmp_path / "out"
    save_file(tiny_graph(), data)
    compared(out, data, capsys, 2)
    first_records = records(out)
    monkeypatch.setattr("gistgnn.compare.many_runs.version_of", lambda _: "99.0")
    compared(out, data, capsys, 2)
    assert len(records(out) - first_records) == len(first_records)


def test_comparing_runs_of_different_files_says_so(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(other_features(tiny_graph()), tmp_path / "g.npz")
    assert (
        run(
            "train", "--dataset", tmp_path / "g.npz", *SMALL, "--sub-gcns", 1,
            "--out", tmp_path / "run",
        )
        == 0
    )  # fmt: skip
    capsys.readouterr()
    assert (
        run("compare", finished / "run", tmp_path / "run", "--out", tmp_path / "page", "--json")
        == 0
    )
    notes = " ".join(json.loads(capsys.readouterr().out)["notes"])
    assert "the graph's features" in notes
    assert "labels" not in notes
