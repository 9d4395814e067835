"""`gistgnn convert` and `partition`, and what other commands do with their folders."""

import json
import signal
from pathlib import Path

import pytest

from gistgnn.graphs import load
from tests.graph_folders.folders import csv_tables, some_graph
from tests.helpers.commands import start_command
from tests.helpers.flips import flipped

from .conftest import Cli, Json
from .in_process import refused, run, wait_until


def test_a_converted_data_set_trains_evaluates_and_predicts_as_the_data_set(
    cli: Cli, as_json: Json, tmp_path: Path
) -> None:
    completed = cli("convert", "digits", "made", "--json")
    facts = json.loads(completed.stdout)
    assert (facts["nodes"], facts["edges"]) == (1797, 24_678)
    assert facts["peak_memory_bytes"] > 2**20
    completed = cli("datasets", "made", "--verify")
    for line in ("    nodes  1,797", "        x  float32", "checksums  all fit"):
        assert line in completed.stdout
    models = []
    for dataset in ("digits", "made"):
        words = (
            "--hidden", 16, "--epochs", 2, "--sub-gcns", 2, "--standardise",
            "--out", f"run-{dataset}",
        )  # fmt: skip
        models.append(as_json("train", "--dataset", dataset, *words))
        assert cli("predict", f"run-{dataset}", "--output", f"{dataset}.csv").returncode == 0
    assert models[0]["test"] == models[1]["test"]
    assert models[0]["history"][-1]["loss"] == models[1]["history"][-1]["loss"]
    assert as_json("evaluate", "run-made")["test"] == pytest.approx(models[0]["test"])
    assert (tmp_path / "made.csv").read_text() == (tmp_path / "digits.csv").read_text()
    assert as_json("partition", "--dataset", "made", "--clusters", 8)["edges"] == 24_678


def test_tables_are_converted_and_unfit_ones_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edges, nodes = csv_tables(some_graph(), tmp_path)
    assert run("convert", edges, tmp_path / "made", "--nodes", nodes, "--undirected") == 0
    out = capsys.readouterr().out
    edges_made = load(tmp_path / "made").num_edges
    assert f"made: 40 nodes and {edges_made:,} edges in {tmp_path / 'made'}" in out
    assert "features  3 as float32" in out
    refused(
        capsys, "is there already: choose another folder", "convert", edges, tmp_path / "made",
        "--nodes", nodes,
    )  # fmt: skip
    edges, nodes = csv_tables(some_graph(val=[], partial=True), tmp_path)
    message = (
        "nodes.csv: val is empty; expected at least one node: the best model is chosen on "
        "them, so move some"
    )
    refused(
        capsys, message, "convert", edges, tmp_path / "other", "--nodes", nodes, leaves=tmp_path
    )
    edges, nodes = csv_tables(some_graph(test=[]), tmp_path)
    assert run("convert", edges, tmp_path / "other", "--nodes", nodes) == 0
    assert capsys.readouterr().err.count("other has no test nodes: there are no test scores") == 1
    assert not load(tmp_path / "other").test.any()
    path = tmp_path / "made" / "x.npy"
    with flipped(path, path.stat().st_size - 1):
        message = f"{path} is damaged, or of another run: its checksum does not fit"
        refused(capsys, message, "datasets", tmp_path / "made", "--verify")


def test_ctrl_c_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    process = start_command(tmp_path, "convert", "synthetic:papers100m@0.01", "made")
    wait_until((tmp_path / ".gistgnn-convert-made" / "x.npy").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "gistgnn: interrupted"
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*made*"))


def test_partition_writes_a_folder_in_the_order_of_clusters(
    cli: Cli, as_json: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("convert", "digits", "graph").returncode == 0
    words = (
        "partition", "--dataset", "graph", "--clusters", 30, "--method", "stream",
        "--out", "made",
    )  # fmt: skip
    completed = cli(*words, "--memory", 2, "--json")
    assert completed.returncode == 0, completed.stderr
    facts = json.loads(completed.stdout)
    assert (facts["method"], facts["clusters"]) == ("stream", 30)
    assert 1 <= facts["sizes"]["min"] <= facts["sizes"]["median"] <= facts["sizes"]["max"] <= 61
    assert facts["edges_inside"] > 0.6 > as_json(*words[:5], "--method", "random")["edges_inside"]
    assert cli("datasets", "made", "--verify").returncode == 0
    chosen = as_json("partition", "--dataset", "graph", "--out", "chosen")
    assert chosen["clusters"] == as_json("partition")["clusters"] > 20
    by_metis = cli(*words[:5], "--out", "by-metis")
    assert "METIS needs about 52.4 MiB for 24,678 edges, which fits, as" in by_metis.stderr
    assert "method  metis" in by_metis.stdout
    refused(
        capsys, "memory is 10.2 MiB; expected", *words, "--out", "other", "--memory", 0.01,
        leaves=tmp_path,
    )  # fmt: skip


def test_partition_fills_the_cache_of_inductive_training(
    cli: Cli, own_graph: Path, cache_folder: Path
) -> None:
    words = ("partition", "--dataset", own_graph, "--clusters", 6, "--inductive", "--json")
    completed = cli(*words)
    facts = json.loads(completed.stdout)
    (cached,) = cache_folder.iterdir()
    assert (facts["nodes"], facts["inductive"], facts["cache"]) == (13, True, str(cached))
    assert "METIS cuts 13 nodes" in completed.stderr
    assert cli(*words).stderr == ""
    train = ("train", "--dataset", own_graph, "--hidden", 8, "--epochs", 4, "--sub-gcns", 2)
    clusters = ("--sampler", "clusters", "--clusters", 6, "--clusters-per-batch", 2)
    assert "METIS" not in cli(*train, *clusters, "--inductive").stderr
    assert "METIS cuts 40 nodes" in cli(*train, *clusters).stderr
