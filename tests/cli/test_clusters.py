"""`gistgnn partition`, and the cache that training by clusters uses."""

import json
from pathlib import Path

import numpy as np
import pytest

from .conftest import Cli, arrays
from .in_process import refused


def test_partition_says_what_it_did(cli: Cli, cache_folder: Path) -> None:
    first = cli("partition", "--clusters", 30)
    assert first.returncode == 0, first.stderr
    assert "MiB of memory" in first.stderr
    (kept,) = cache_folder.iterdir()
    assert str(kept) in first.stdout
    again = cli("partition", "--clusters", 30, "--json")
    assert again.returncode == 0
    assert again.stderr == ""  # METIS did not run
    facts = json.loads(again.stdout)
    assert facts["nodes"] == 1797
    assert facts["clusters"] == 30
    assert 1 <= facts["sizes"]["min"] <= facts["sizes"]["median"] <= facts["sizes"]["max"] <= 70
    assert facts["edges_inside"] > 0.6
    assert facts["cache"] == str(kept)
    dealt = json.loads(cli("partition", "--clusters", 30, "--method", "random", "--json").stdout)
    assert dealt["edges_inside"] < 0.1
    assert dealt["cache"] is None


def test_partition_says_that_a_graph_is_not_symmetric(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["edge_index"] = graph["edge_index"][:, :40]
    np.savez(tmp_path / "directed.npz", **graph)
    done = cli("partition", "--dataset", "directed.npz", "--clusters", 4)
    assert done.returncode == 0
    assert "not symmetric" in done.stderr


def test_a_folder_in_the_order_of_its_clusters(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("convert", "digits", "graph").returncode == 0
    words = ("partition", "--dataset", "graph", "--clusters", 30, "--method", "stream", "--out", "made")
    done = cli(*words, "--memory", 2, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["method"] == "stream"
    assert facts["clusters"] == 30
    assert 1 <= facts["sizes"]["min"] <= facts["sizes"]["median"] <= facts["sizes"]["max"] <= 61
    assert facts["edges_inside"] > 0.6
    assert list(facts["passes"]) == ["clusters", "renumbering"]
    assert "partitioning digits: 2 of 2" in done.stderr
    checked = cli("datasets", "made", "--verify")
    assert checked.returncode == 0, checked.stderr
    by_metis = cli(*words[:5], "--out", "by-metis")
    assert by_metis.returncode == 0, by_metis.stderr
    assert "METIS needs about 52.3 MiB for 24,678 edges, which fits, as" in by_metis.stderr
    assert "method  metis" in by_metis.stdout
    in_memory = json.loads(cli("partition", "--clusters", 30, "--method", "stream", "--json").stdout)
    assert in_memory["edges_inside"] == pytest.approx(facts["edges_inside"])
    refusals = {
        ("--out", "other", "--memory", 0.01): "memory is 10.2 MiB; expected at least",
        ("--out", "other", "--inductive"): "--out writes the whole graph: leave one out",
        ("--out", "graph"): "graph is there already: choose another folder",
        ("--out", "by-metis", "--seed", 1): "by-metis is there already: choose another folder",
        ("--out", "other", "--dataset", "made"): "made is in clusters already",
        ("--out", "other", "--clusters", 1798): "clusters is 1798, expected an integer from 1 to 1797",
    }
    monkeypatch.chdir(tmp_path)
    for options, message in refusals.items():
        refused(capsys, message, *words[:5], *options, leaves=tmp_path)


def test_a_damaged_file_in_the_cache_is_made_again(cli: Cli, cache_folder: Path) -> None:
    assert cli("partition", "--clusters", 30).returncode == 0
    (kept,) = cache_folder.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:100])
    done = cli("partition", "--clusters", 30)
    assert done.returncode == 0
    assert "damaged" in done.stderr
    assert kept.read_bytes() == whole


def test_partition_fills_the_cache_of_inductive_training(cli: Cli, own_graph: Path, cache_folder: Path) -> None:
    done = cli("partition", "--dataset", own_graph, "--clusters", 6, "--json", "--inductive")
    facts = json.loads(done.stdout)
    assert (facts["nodes"], facts["inductive"]) == (13, True)
    assert "METIS cuts 13 nodes" in done.stderr
    assert len(list(cache_folder.iterdir())) == 1
    train = ("train", "--dataset", own_graph, "--hidden", 8, "--epochs", 4, "--sub-gcns", 2)
    clusters = ("--sampler", "clusters", "--clusters", 6, "--clusters-per-batch", 2)
    inductive = cli(*train, *clusters, "--inductive")
    assert inductive.returncode == 0, inductive.stderr
    assert "METIS" not in inductive.stderr
    assert "METIS cuts 40 nodes" in cli(*train, *clusters).stderr
