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
    done = cli(*args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


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
    found = as_json(*TRAIN, "--evaluation", method, "--evaluation-memory", 0.5)
    assert found["evaluation"]["method"] == ("whole" if method == "auto" else method)
    assert found["evaluation"]["exact"] is True
    assert found["test"] == plain["test"]
    assert found["config"]["evaluation"] == {
        "method": method,
        "memory": 2**29,
        "parts": None,
        "sample": None,
    }
    scored = as_json("evaluate", "run", "--evaluation", method)
    assert scored["evaluation"]["exact"] is True
    assert scored["test"] == pytest.approx(found["test"])
    assert list(scored) == ["train", "validation", "test", "evaluation"]


def test_by_parts_is_said_to_be_approximate(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert "estimates, since the graph was evaluated in parts" in cli(*TRAIN, *PARTS).stdout
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["evaluation"] == {"method": "parts", "exact": False, "parts": 4}
    for options, said in {
        (): "by 4 parts)",
        ("--parts", 3): "by 3 parts)",
        ("--evaluation", "layers"): "",
    }.items():
        for command in (
            cli("evaluate", "run", *options).stdout,
            cli("predict", "run", *options, "--output", "w.csv").stderr,
        ):
            # as the run, unless an option says otherwise
            assert ("approximate" in command) == bool(said)
            assert said in command
    assert (
        cli(
            "predict", "run", "--output", "one.csv", "--evaluation", "parts", "--parts", 1
        ).returncode
        == 0
    )
    rows = [
        np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1) for name in ("w", "one")
    ]
    np.testing.assert_allclose(*rows, atol=1e-5)


def test_splits_that_another_graph_lacks_are_left_out(
    cli: Cli, as_json: Json, own_graph: Path, tmp_path: Path
) -> None:
    as_json(*TRAIN)
    whole = as_json("evaluate", "run")
    plain = arrays()
    test = plain.pop("test")
    del plain["train"], plain["val"]
    np.savez(tmp_path / "lists.npz", **plain, test=test)
    np.savez(tmp_path / "masks.npz", **plain, test_mask=np.isin(np.arange(40), test))
    for name in ("lists.npz", "masks.npz"):
        assert as_json("evaluate", "run", "--dataset", name) == {
            key: whole[key] for key in ("test", "evaluation")
        }
    assert "validation" not in cli("evaluate", "run", "--dataset", "lists.npz").stdout
    refused(cli, "has no train", "train", "--dataset", "lists.npz", "--out", "other")
    np.savez(tmp_path / "none.npz", **plain)
    refused(
        cli, "there are no nodes in train, val, test", "evaluate", "run", "--dataset", "none.npz"
    )


def test_a_graph_without_a_test_set(cli: Cli, as_json: Json, tmp_path: Path) -> None:
    plain = arrays()
    del plain["test"]
    np.savez(tmp_path / "own.npz", **plain, test_mask=np.zeros(40, bool))
    assert as_json("datasets", "own.npz")["test"] == 0
    np.savez(tmp_path / "own.npz", **plain)
    done = cli(*TRAIN, "--log", "tensorboard", "--metric", "balanced_accuracy")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("own has no test nodes: there are no test scores") == 1
    assert "validation" in done.stdout
    assert "test" not in done.stdout
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert (record["test"], {entry["test"] for entry in record["history"]}) == ({}, {None})
    assert sum(each["nodes"] for each in record["classes"]) == 13
    page = (tmp_path / "run/report.html").read_text()
    assert '<th scope="col">validation balanced accuracy</th>' in page
    assert "test nodes" not in page
    best = record["validation"]["balanced_accuracy"]
    assert f"{best:.4f} balanced accuracy (validation)" in cli("list", ".").stdout
    assert as_json("list", ".")[0]["validation"] == best
    for options in ((), ("--evaluation", "parts", "--parts", 4, "--parts-sample", 3)):
        assert as_json("evaluate", "run", *options).keys() == {"train", "validation", "evaluation"}
    assert (
        as_json(
            *TRAIN, "--method", "ensemble", "--metric", "balanced_accuracy", "--out", "ensemble"
        )["test"]
        == {}
    )
    compared = as_json("compare", "run", "ensemble", "--out", "page")
    assert compared["rows"][0]["score"] == [pytest.approx(100 * best)]
    assert "validation balanced accuracy (%)" in (tmp_path / "page/comparison.md").read_text()


def test_scores_over_a_sample(cli: Cli, as_json: Json, own_graph: Path) -> None:
    record = as_json(*TRAIN, *PARTS, "--set", "parts_sample=3")
    assert record["config"]["evaluation"] == {
        "method": "parts",
        "memory": None,
        "parts": 4,
        "sample": 3,
    }
    how = record["evaluation"]
    assert (how["method"], how["exact"], how["parts"], how["sample"]) == ("parts", False, 4, 3)
    assert 20 < sum(how["nodes"].values()) < 40
    found = as_json("evaluate", "run")
    assert found["evaluation"] == how
    assert found["test"] == pytest.approx(record["test"])
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
        *TRAIN,
        "--overwrite",
        "--evaluation",
        "parts",
        "--set",
        "parts=20",
        "--set",
        "parts_sample=1",
    )
    assert "parts has no validation node: raise the sample" in few.stderr


def test_several_labels_and_files_that_do_not_fit(
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
    said = "x has shape [40, 2]: the model expects [N, 3]"
    refused(cli, said, "evaluate", "run", *narrow)
    refused(cli, said, "predict", "run", "--output", "p.csv", *narrow)
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
    assert (
        cli("predict", "run", "--output", "p.csv", "--evaluation", "parts", "--parts", 2).returncode
        == 0
    )
    assert (tmp_path / "p.csv").read_text().startswith("node,label_0,label_1\n0,")


def test_the_model_of_a_run_scales_features_as_training_did(
    cli: Cli, as_json: Json, tmp_path: Path
) -> None:
    graph = arrays()
    graph["x"] = np.column_stack(
        [graph["x"] * [1e3, 1, 1e-3] + [5, 0, 0], np.full(40, 0.1)]
    ).astype(np.float32)
    np.savez(tmp_path / "own.npz", **graph)
    record = as_json(*TRAIN, "--epochs", 30, "--norm", "none")
    tensors = load_file(tmp_path / "run/model.safetensors")
    x = graph["x"][graph["train"]].astype(float)
    mean = tensors.pop("feature_mean")
    std = tensors.pop("feature_std")
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, [*x.std(axis=0)[:3], 1], rtol=1e-5)
    own = load("own.npz")
    test = torch.from_numpy(graph["test"])
    plain = GCN(4, tuple(record["config"]["model"]["hidden"]), 3)
    plain.load_state_dict(tensors)
    for model, given in ((plain, (own.x - mean) / std), (load_run("run").model, own.x)):
        guess = model.eval()(given, own.edge_index).argmax(dim=1)
        assert (guess == own.y)[test].float().mean().item() == pytest.approx(
            record["test"]["accuracy"]
        )
    for method in ("whole", "layers"):
        assert (
            evaluate(load_run("run").model, own, evaluation=Evaluation(method))["test"]
            == record["test"]
        )
    # the features decide
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
