"""`gistgnn evaluate`, `predict` and `datasets`, and --evaluation of `train`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gistgnn import load_run
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import evaluate
from gistgnn.graphs import DATASETS, load
from gistgnn.nn import GCN

from .conftest import TRAIN, Cli, Json, arrays

PARTS = ("--evaluation", "parts", "--set", "parts=4")


def refused(cli: Cli, message: str, *args: object) -> None:
    completed = cli(*args)
    assert (completed.returncode, completed.stdout, completed.stderr.count("\n")) == (2, "", 1)
    assert message in completed.stderr


def test_datasets_lists_every_name_and_says_what_a_file_holds(
    cli: Cli, as_json: Json, own_graph: Path
) -> None:
    rows = {row["name"]: row for row in as_json("datasets")}
    assert list(rows) == list(DATASETS)
    assert {
        name: rows[name]["data"] for name in ("digits", "synthetic:reddit", "cora", "ogbn-arxiv")
    } == {
        "digits": "here",
        "synthetic:reddit": "here",
        "cora": "fetch",
        "ogbn-arxiv": "unpack",
    }
    assert rows["reddit"]["bytes"] == 4 * (232_965 * 602 + 114_615_892 + 232_965)
    raw = Path("data/Planetoid/Cora/raw")
    raw.mkdir(parents=True)
    assert as_json("datasets")[0]["data"] == "fetch"  # the folder is empty
    (raw / "ind.cora.x").touch()
    assert as_json("datasets")[0]["data"] == "here"
    listed = cli("datasets").stdout.splitlines()
    assert any(line.startswith("coauthor-physics ") for line in listed)
    assert max(map(len, listed[: len(DATASETS) + 1])) <= 80
    sizes = {
        "nodes": 40,
        "edges": 80,
        "features": 3,
        "classes": 3,
        "train": 13,
        "val": 13,
        "test": 14,
    }
    assert as_json("datasets", own_graph) == {"name": "own", "task": "single-label", **sizes}
    assert "nodes  40" in cli("datasets", own_graph).stdout


@pytest.mark.parametrize("method", ["auto", "layers"])
def test_exact_methods_give_one_result(as_json: Json, own_graph: Path, method: str) -> None:
    plain = as_json(*TRAIN, "--out", "plain", "--evaluation", "whole")
    record = as_json(*TRAIN, "--evaluation", method, "--evaluation-memory", 0.5)
    assert record["evaluation"]["method"] == ("whole" if method == "auto" else method)
    assert record["evaluation"]["exact"] is True
    assert record["test"] == plain["test"]
    assert record["config"]["evaluation"] == {
        "method": method,
        "memory": 2**29,
        "parts": None,
        "sample": None,
    }
    scored = as_json("evaluate", "run", "--evaluation", method)
    assert scored["evaluation"]["exact"] is True
    assert scored["test"] == pytest.approx(record["test"])
    assert list(scored) == ["train", "validation", "test", "evaluation"]


def test_by_parts_is_said_to_be_approximate(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert "estimates, since the graph was evaluated in parts" in cli(*TRAIN, *PARTS).stdout
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["evaluation"] == {"method": "parts", "exact": False, "parts": 4}
    # A command evaluates as the run did, unless an option says otherwise.
    for options, expected in {
        (): "by 4 parts)",
        ("--parts", 3): "by 3 parts)",
        ("--evaluation", "layers"): "",
    }.items():
        evaluated = cli("evaluate", "run", *options)
        predicted = cli("predict", "run", *options, "--output", "layers.csv")
        for output in (evaluated.stdout, predicted.stderr):
            assert ("approximate" in output) == bool(expected)
            assert expected in output
    one_part = ("--evaluation", "parts", "--parts", 1)
    assert cli("predict", "run", "--output", "one.csv", *one_part).returncode == 0
    by_layers, by_one_part = (
        np.loadtxt(tmp_path / name, delimiter=",", skiprows=1) for name in ("layers.csv", "one.csv")
    )
    np.testing.assert_allclose(by_one_part, by_layers, atol=1e-5)


def test_splits_that_another_graph_lacks_are_left_out(
    cli: Cli, as_json: Json, own_graph: Path, tmp_path: Path
) -> None:
    as_json(*TRAIN)
    scores = as_json("evaluate", "run")
    plain = arrays()
    test = plain.pop("test")
    del plain["train"], plain["val"]
    np.savez(tmp_path / "lists.npz", **plain, test=test)
    np.savez(tmp_path / "masks.npz", **plain, test_mask=np.isin(np.arange(40), test))
    expected = {key: scores[key] for key in ("test", "evaluation")}
    for name in ("lists.npz", "masks.npz"):
        assert as_json("evaluate", "run", "--dataset", name) == expected
    assert "validation" not in cli("evaluate", "run", "--dataset", "lists.npz").stdout
    refused(cli, "has no train", "train", "--dataset", "lists.npz", "--out", "other")
    np.savez(tmp_path / "none.npz", **plain)
    refused(
        cli, "there are no nodes in train, val, test", "evaluate", "run", "--dataset", "none.npz"
    )


def test_a_graph_without_a_test_set_has_validation_scores_alone(
    cli: Cli, as_json: Json, tmp_path: Path
) -> None:
    plain = arrays()
    del plain["test"]
    np.savez(tmp_path / "own.npz", **plain, test_mask=np.zeros(40, bool))
    assert as_json("datasets", "own.npz")["test"] == 0
    np.savez(tmp_path / "own.npz", **plain)
    completed = cli(*TRAIN, "--log", "tensorboard", "--metric", "balanced_accuracy")
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("own has no test nodes: there are no test scores") == 1
    assert "validation" in completed.stdout
    assert "test" not in completed.stdout
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert (record["test"], {entry["test"] for entry in record["history"]}) == ({}, {None})
    assert sum(row["nodes"] for row in record["classes"]) == 13
    page = (tmp_path / "run/report.html").read_text()
    assert '<th scope="col">validation balanced accuracy</th>' in page
    assert "test nodes" not in page
    best = record["validation"]["balanced_accuracy"]
    assert f"{best:.4f} balanced accuracy (validation)" in cli("list", ".").stdout
    assert as_json("list", ".")[0]["validation"] == best
    for options in ((), ("--evaluation", "parts", "--parts", 4, "--parts-sample", 3)):
        assert as_json("evaluate", "run", *options).keys() == {"train", "validation", "evaluation"}
    ensemble = ("--method", "ensemble", "--metric", "balanced_accuracy", "--out", "ensemble")
    assert as_json(*TRAIN, *ensemble)["test"] == {}
    compared = as_json("compare", "run", "ensemble", "--out", "page")
    assert compared["rows"][0]["score"] == [pytest.approx(100 * best)]
    assert "validation balanced accuracy (%)" in (tmp_path / "page/comparison.md").read_text()


def test_scores_over_a_sample_of_parts_say_so(cli: Cli, as_json: Json, own_graph: Path) -> None:
    record = as_json(*TRAIN, *PARTS, "--set", "parts_sample=3")
    assert record["config"]["evaluation"] == {
        "method": "parts",
        "memory": None,
        "parts": 4,
        "sample": 3,
    }
    evaluation = record["evaluation"]
    assert (evaluation["method"], evaluation["exact"]) == ("parts", False)
    assert (evaluation["parts"], evaluation["sample"]) == (4, 3)
    assert 20 < sum(evaluation["nodes"].values()) < 40
    scored = as_json("evaluate", "run")
    assert scored["evaluation"] == evaluation
    assert scored["test"] == pytest.approx(record["test"])
    assert as_json("evaluate", "run", "--parts", 4)["evaluation"] == {
        "method": "parts",
        "exact": False,
        "parts": 4,
    }
    assert "approximate, by 3 of 4 parts" in cli("evaluate", "run").stdout
    assert (
        "40 nodes written to p.csv (approximate, by 4 parts)"
        in cli("predict", "run", "--output", "p.csv").stderr
    )
    refused(cli, "'sample': 3", *TRAIN, *PARTS, "--resume")
    few = cli(
        *TRAIN, "--overwrite", "--evaluation", "parts", "--set", "parts=20",
        "--set", "parts_sample=1",
    )  # fmt: skip
    assert "parts has no validation node: raise the sample" in few.stderr


def test_files_that_do_not_fit_are_refused_and_several_labels_are_predicted(
    cli: Cli, as_json: Json, tmp_path: Path, own_graph: Path
) -> None:
    assert cli(*TRAIN).returncode == 0
    y = arrays()["y"]
    np.savez(tmp_path / "narrow.npz", **{**arrays(), "x": arrays()["x"][:, :2]})
    np.savez(
        tmp_path / "multi.npz",
        **{**arrays(), "y": np.stack([y == 0, y != 1], axis=1).astype(np.float32)},
    )
    narrow = ("--dataset", "narrow.npz")
    multi = ("--dataset", "multi.npz")
    message = "x has shape [40, 2]: the model expects [N, 3]"
    refused(cli, message, "evaluate", "run", *narrow)
    refused(cli, message, "predict", "run", "--output", "p.csv", *narrow)
    refused(
        cli,
        "was trained on one label per node, multi has several labels",
        "evaluate",
        "run",
        *multi,
    )
    assert not list(tmp_path.glob("p.*"))
    train = (*TRAIN, *multi, "--overwrite")
    assert as_json(*train, "--evaluation", "layers")["test"] == as_json(*train)["test"]
    parts = ("--evaluation", "parts", "--parts", 2)
    assert cli("predict", "run", "--output", "p.csv", *parts).returncode == 0
    assert (tmp_path / "p.csv").read_text().startswith("node,label_0,label_1\n0,")


def test_the_model_of_a_run_scales_features_as_training_did(
    cli: Cli, as_json: Json, tmp_path: Path
) -> None:
    graph = arrays()
    scales = graph["x"] * [1e3, 1, 1e-3] + [5, 0, 0]
    graph["x"] = np.column_stack([scales, np.full(40, 0.1)]).astype(np.float32)
    np.savez(tmp_path / "own.npz", **graph)
    record = as_json(*TRAIN, "--epochs", 30, "--norm", "none")
    tensors = load_file(tmp_path / "run/model.safetensors")
    x = graph["x"][graph["train"]].astype(float)
    mean = tensors.pop("feature_mean")
    std = tensors.pop("feature_std")
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, [*x.std(axis=0)[:3], 1], rtol=1e-5)
    graph_of_run = load("own.npz")
    test = torch.from_numpy(graph["test"])
    plain = GCN(4, tuple(record["config"]["model"]["hidden"]), 3)
    plain.load_state_dict(tensors)
    scaled = (graph_of_run.x - mean) / std
    for model, features in ((plain, scaled), (load_run("run").model, graph_of_run.x)):
        guess = model.eval()(features, graph_of_run.edge_index).argmax(dim=1)
        accuracy = (guess == graph_of_run.y)[test].float().mean().item()
        assert accuracy == pytest.approx(record["test"]["accuracy"])
    for method in ("whole", "layers"):
        scores = evaluate(load_run("run").model, graph_of_run, evaluation=Evaluation(method))
        assert scores["test"] == record["test"]
    # Where no option says so, the features decide that they are scaled.
    assert (record["config"]["standardise"], record["standardised"]) == (None, True)
    assert as_json("evaluate", "run")["test"] == pytest.approx(record["test"])
    np.savez(tmp_path / "new.npz", x=graph["x"], edge_index=graph["edge_index"])
    for dataset, name in (
        ((), "own.csv"),
        (("--dataset", "new.npz"), "new.csv"),
        (("--dataset", "new.npz"), "p.npz"),
    ):
        assert cli("predict", "run", *dataset, "--output", name).returncode == 0
    assert (tmp_path / "own.csv").read_text() == (tmp_path / "new.csv").read_text()
    with (tmp_path / "new.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["node"]) for row in rows] == list(range(40))
    classes = np.array([int(row["class"]) for row in rows])
    assert (classes == graph["y"])[graph["test"]].mean() == pytest.approx(
        record["test"]["accuracy"]
    )
    with np.load(tmp_path / "p.npz") as saved:
        assert (saved["classes"] == classes).all()
        assert saved["probabilities"].shape == (40, 3)
        np.testing.assert_allclose(saved["probabilities"].sum(1), 1, rtol=1e-5)
    assert cli(*TRAIN, "--no-standardise", "--overwrite").returncode == 0
    assert "feature_mean" not in load_file(tmp_path / "run/model.safetensors")
