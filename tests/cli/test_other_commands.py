"""datasets, evaluate and predict."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from gistgnn.graphs import DATASETS

from .conftest import Cli, arrays

TRAIN = (
    "train",
    "--hidden",
    8,
    "--epochs",
    30,
    "--training",
    "each",
    "--local-steps",
    5,
    "--sub-gcns",
    2,
    "--out",
    "run",
)


def test_help_and_version(cli: Cli) -> None:
    assert "gistgnn 0." in cli("--version").stdout
    for command in ("train", "list", "evaluate", "predict", "datasets", "partition", "reproduce"):
        assert command in cli("--help").stdout
        assert cli(command, "--help").returncode == 0


def test_datasets_lists_every_name(cli: Cli) -> None:
    listed = json.loads(cli("datasets", "--json").stdout)
    assert [row["name"] for row in listed] == list(DATASETS)
    assert all(name in cli("datasets").stdout for name in ("cora", "ppi", "amazon2m"))


def test_datasets_says_what_a_file_holds(cli: Cli, own_graph: Path) -> None:
    facts = json.loads(cli("datasets", own_graph, "--json").stdout)
    assert facts == {
        "name": "own",
        "nodes": 40,
        "edges": 80,
        "features": 3,
        "classes": 3,
        "task": "single-label",
        "train": 13,
        "val": 13,
        "test": 14,
    }
    assert "nodes  40" in cli("datasets", own_graph).stdout


def test_evaluate_gives_the_scores_of_the_run(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert cli(*TRAIN, "--dataset", own_graph).returncode == 0
    record = json.loads((tmp_path / "run/result.json").read_text())
    found = json.loads(cli("evaluate", "run", "--json").stdout)
    for split in ("validation", "test"):
        assert found[split] == pytest.approx(record[split])
    assert "train" in cli("evaluate", "run").stdout


def test_evaluate_on_a_graph_that_does_not_fit(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert cli(*TRAIN, "--dataset", own_graph).returncode == 0
    refused = cli("evaluate", "run", "--dataset", "digits")
    assert refused.returncode == 2
    assert "x has 64 features; the model was trained on 3" in refused.stderr
    (tmp_path / "run/model.safetensors").write_bytes(b"torn")
    torn = cli("evaluate", "run")
    assert torn.returncode == 2
    assert "model.safetensors is damaged" in torn.stderr


def test_predict_writes_csv_and_npz_for_an_unlabelled_graph(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert cli(*TRAIN, "--dataset", own_graph).returncode == 0
    graph = arrays()
    np.savez(tmp_path / "new.npz", x=graph["x"], edge_index=graph["edge_index"])
    assert cli("predict", "run", "--dataset", "new.npz", "--output", "p.csv").returncode == 0
    assert cli("predict", "run", "--dataset", "new.npz", "--output", "p.npz").returncode == 0
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["node"]) for row in rows] == list(range(40))
    classes = np.array([int(row["class"]) for row in rows])
    record = json.loads((tmp_path / "run/result.json").read_text())
    test = graph["test"]
    assert (classes == graph["y"])[test].mean() == pytest.approx(record["test"]["accuracy"])
    with np.load(tmp_path / "p.npz") as saved:
        assert (saved["classes"] == classes).all()
        assert saved["probabilities"].shape == (40, 3)
        np.testing.assert_allclose(saved["probabilities"].sum(1), 1, rtol=1e-5)


def test_predict_of_a_multi_label_model(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["y"] = np.stack([graph["y"] == 0, graph["y"] != 1], axis=1).astype(np.float32)
    np.savez(tmp_path / "multi.npz", **graph)
    assert cli(*TRAIN, "--dataset", "multi.npz").returncode == 0
    assert cli("predict", "run", "--output", "p.csv").returncode == 0
    assert (tmp_path / "p.csv").read_text().startswith("node,label_0,label_1\n0,")


def test_evaluate_does_not_mix_one_and_several_labels(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert cli(*TRAIN, "--dataset", own_graph).returncode == 0
    graph = arrays()
    graph["y"] = np.eye(3, dtype=np.float32)[graph["y"]]
    np.savez(tmp_path / "multi.npz", **graph)
    refused = cli("evaluate", "run", "--dataset", "multi.npz")
    assert refused.returncode == 2
    assert "was trained on one label per node, multi has several labels" in refused.stderr


def test_the_list_of_data_sets_fits_a_terminal(cli: Cli) -> None:
    listed = cli("datasets").stdout.splitlines()
    assert any(line.startswith("coauthor-physics ") for line in listed)
    assert max(map(len, listed[:-1])) <= 80
