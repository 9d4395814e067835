"""The files of `gistgnn predict` have each prediction once, under the old number of its node.

That is its number before the graph was cut.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gistgnn import load
from gistgnn.graphs import save_file
from gistgnn.runs import prediction_files
from gistgnn.runs.prediction_files import (
    first_outputs,
    renumbered_outputs,
    write_predictions,
)
from tests.cli.in_process import run
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.facts import facts_of

from .folders import csv_tables, some_graph, write_value

TRAIN = ("--model", "graphsage", "--hidden", 8, "--sub-gcns", 2, "--epochs", 2)
NAMES = np.array(['say "no", or', "été", "Ünder"])  # neither the order nor the letters of ASCII


@pytest.mark.parametrize("several", [False, True])
def test_pieces_are_written_once_and_under_the_old_numbers(
    several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_files, "_ROWS", 7)
    numbers = torch.randperm(50)
    logits = torch.randn(50, 4)
    scores = (logits / 2).sigmoid() if several else (logits / 2).softmax(dim=1)
    back = numbers.argsort()
    labels = (logits > 0).long() if several else logits.argmax(dim=1)
    pieces = [
        (slice(start, min(start + 9, 50)), logits[start : start + 9]) for start in range(0, 50, 9)
    ]
    for name in ("p.npz", "p.csv"):
        write_predictions(
            tmp_path / name,
            renumbered_outputs(pieces, numbers),
            50,
            facts_of(4, multi_label=several),
            temperature=2.0,
        )
    written = np.load(tmp_path / "p.npz")
    assert np.array_equal(written["classes"], labels[back].numpy())
    np.testing.assert_allclose(written["probabilities"], scores[back].numpy(), rtol=1e-6)
    rows = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1)
    assert np.array_equal(rows[:, 0], np.arange(50))
    shown = scores[back] if several else scores.gather(1, labels.unsqueeze(1))[back]
    np.testing.assert_allclose(rows[:, 1 if several else 2 :], shown.numpy(), atol=1e-6)
    assert several or np.array_equal(rows[:, 1], labels[back].numpy())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.npz"]


def test_first_outputs_are_those_of_the_first_nodes_alone() -> None:
    logits = torch.randn(10, 3)
    for pieces in (
        [(slice(0, 4), logits[:4]), (slice(4, 10), logits[4:])],
        [(torch.tensor([8, 2, 9]), logits[[8, 2, 9]]), (torch.tensor([9, 7]), logits[[9, 7]])],
    ):
        for nodes in (1, 3, 6, 10):
            rows = {
                int(node): row
                for places, output in first_outputs(pieces, nodes)
                for node, row in zip(places, output, strict=True)
            }
            numbers = torch.cat([torch.arange(10)[places] for places, _ in pieces])
            assert rows.keys() == set(numbers[numbers < nodes].tolist())
            assert all(torch.equal(row, logits[node]) for node, row in rows.items())


def succeeds(*words: object) -> None:
    assert run(*words) == 0


def test_the_command_gives_nodes_their_old_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, clusters = make_clustered(some_graph(120, 900), 6, tmp_path / "folder")
    save_file(same, tmp_path / "same.npz")
    succeeds(
        "train", "--dataset", tmp_path / "folder", "--sampler", "clusters", *TRAIN,
        "--out", tmp_path / "run",
    )  # fmt: skip
    for name, dataset in (("folder", "folder"), ("memory", "same.npz")):
        succeeds(
            "predict", tmp_path / "run", "--dataset", tmp_path / dataset,
            "--output", tmp_path / f"{name}.npz",
        )  # fmt: skip
    one, other = (np.load(tmp_path / f"{name}.npz") for name in ("folder", "memory"))
    np.testing.assert_allclose(
        one["probabilities"][clusters.order.numpy()], other["probabilities"], atol=1e-6
    )
    assert np.array_equal(one["classes"][clusters.order.numpy()], other["classes"])
    write_value(tmp_path / "folder" / "node.npy", 3, 7)
    damaged = ("--dataset", tmp_path / "folder", "--output", tmp_path / "damaged.npz")
    assert run("predict", tmp_path / "run", *damaged) == 2
    assert "node.npy is damaged: it does not hold every node once" in capsys.readouterr().err
    assert not (tmp_path / "damaged.npz").exists()


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_npz(path: Path, graph: Any, y: Any) -> None:
    save_file(graph, path)
    np.savez(
        path,
        **{key: value for key, value in np.load(path).items() if key not in ("y", "num_classes")},
        y=y,
    )


def test_classes_that_are_texts_keep_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = some_graph()
    texts = NAMES[graph.y.numpy()]
    write_npz(tmp_path / "named.npz", graph, texts)
    edges, nodes = csv_tables(graph, tmp_path)
    with nodes.open(newline="") as file:
        header, *rows = csv.reader(file)
    for row, text in zip(rows, texts, strict=True):
        row[1] = text
    with nodes.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    succeeds("convert", edges, tmp_path / "folder", "--nodes", nodes)
    classes = []
    for dataset in ("named.npz", "folder"):
        out = tmp_path / f"run-{dataset}"
        written = tmp_path / f"{dataset}.csv"
        succeeds("train", "--dataset", tmp_path / dataset, *TRAIN, "--out", out)
        assert json.loads((out / "result.json").read_text())["graph"]["class_names"] == sorted(
            NAMES
        )
        succeeds("predict", out, "--output", written, "--dataset", tmp_path / dataset)
        classes.append([row["class"] for row in rows_of(written)])
    assert set(classes[0]) <= set(NAMES)
    assert classes[0] == classes[1]
    save_file(load(tmp_path / "folder"), tmp_path / "again.npz")
    assert load(tmp_path / "again.npz").class_names == tuple(sorted(NAMES))

    # Another graph has two of the names, so its classes have other numbers.
    few = np.where(texts == NAMES[1], "", texts)
    masks = {name: getattr(graph, name).numpy() & (few != "") for name in ("train", "val", "test")}
    write_npz(tmp_path / "few.npz", some_graph(y=few, **masks), few)
    write_npz(tmp_path / "same.npz", some_graph(**masks | {"y": graph.y}), texts)
    capsys.readouterr()
    scores = []
    for name in ("few", "same"):
        succeeds("evaluate", out, "--dataset", tmp_path / f"{name}.npz", "--json")
        scores.append(json.loads(capsys.readouterr().out)["test"]["accuracy"])
    assert scores[0] == scores[1]
    # A graph whose classes are numbers: a note says which names they are taken for.
    write_npz(tmp_path / "numbers.npz", graph, graph.y.numpy())
    succeeds("evaluate", out, "--dataset", tmp_path / "numbers.npz")
    first, second, third = (repr(str(name)) for name in sorted(NAMES))
    assert f"0 for {first}, 1 for {second}, 2 for {third}" in capsys.readouterr().err
    write_npz(tmp_path / "other.npz", graph, np.where(few == "", "other", few))
    assert run("evaluate", out, "--dataset", tmp_path / "other.npz") == 2
    assert "other has the class 'other'; expected one of" in capsys.readouterr().err


def test_nodes_keep_the_ids_of_the_tables(tmp_path: Path) -> None:
    graph = some_graph(120, 900)
    edges, nodes = csv_tables(graph, tmp_path)
    succeeds("convert", edges, tmp_path / "plain", "--nodes", nodes)
    ids = [*(f"{10**12 + node}" for node in range(118)), 'Zoë, the "first"', "007"]
    with edges.open() as edge_file, nodes.open() as node_file:
        ends, *pairs = csv.reader(edge_file)
        header, *rows = csv.reader(node_file)
    pairs_of_ids = [[f" {ids[int(end)]}" for end in pair] for pair in pairs]
    rows_with_ids = [[ids[int(node)], *values] for node, *values in rows]
    with edges.open("w") as edge_file, nodes.open("w") as node_file:
        csv.writer(edge_file).writerows([ends, *pairs_of_ids])
        csv.writer(node_file).writerows([header, *rows_with_ids])
    succeeds("convert", edges, tmp_path / "people", "--nodes", nodes)
    assert load(tmp_path / "people").digests() == load(tmp_path / "plain").digests()
    succeeds(
        "partition", "--dataset", tmp_path / "people", "--clusters", 5, "--out", tmp_path / "cut"
    )
    for name in ("people", "cut"):
        succeeds("convert", tmp_path / name, tmp_path / f"{name} again", "--undirected")
    succeeds("train", "--dataset", tmp_path / "people", *TRAIN, "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["graph"]["name"] == "people"
    rows_of_folder = {}
    for name in ("plain", "people", "cut"):
        succeeds(
            "predict", tmp_path / "run", "--dataset", tmp_path / name,
            "--output", tmp_path / "p.csv",
        )  # fmt: skip
        rows_of_folder[name] = rows_of(tmp_path / "p.csv")
        expected = [str(node) for node in range(120)] if name == "plain" else ids
        assert [row["node"] for row in rows_of_folder[name]] == expected
    plain, people, cut = ([row["class"] for row in rows] for rows in rows_of_folder.values())
    assert plain == people == cut
    # Folders that are made of these, with other edges.
    of_node = {}
    for name in ("people again", "cut again"):
        dataset = ("--dataset", tmp_path / name)
        succeeds("predict", tmp_path / "run", *dataset, "--output", tmp_path / "p.csv")
        of_node[name] = {row["node"]: row["class"] for row in rows_of(tmp_path / "p.csv")}
        assert list(of_node[name]) == ids
    assert of_node["people again"] == of_node["cut again"]
    assert len(load(tmp_path / "cut again").cluster_ptr) == 6
