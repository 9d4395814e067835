"""`gistgnn partition`, and training by clusters."""

import json
from pathlib import Path

import numpy as np
import pytest

from gistgnn.cli.main import main

from .conftest import Cli, arrays
from .in_process import refused

QUICK = ("--hidden", 8, 8, "--epochs", 12, "--local-steps", 3, "--training", "each", "--sub-gcns", 2)
CLUSTERS = ("--sampler", "clusters", "--clusters", 6, "--clusters-per-batch", 2)


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
        ("--out", "other", "--method", "best"): "invalid choice: 'best'",
        ("--out", "other", "--inductive"): "--out writes the whole graph: leave one out",
        ("--out", "graph"): "graph is there already: choose another folder",
        ("--out", "by-metis", "--seed", 1): "by-metis is there already: choose another folder",
        ("--out", "other", "--dataset", "made"): "made is in clusters already",
        ("--out", "other", "--dataset", "digits"): "make one with `gistgnn convert digits FOLDER`",
        ("--out", "other", "--dataset", "nothing"): "nothing has no manifest.json",
        ("--out", "other", "--clusters", 1798): "clusters is 1798, expected an integer from 1 to 1797",
        ("--memory", 2): "--memory is for a folder that is written: add --out",
        ("--method", "auto"): "--method auto is for a folder that is written: add --out",
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


@pytest.mark.parametrize(
    "options", [(), ("--batches", "independent"), ("--cluster-method", "random", "--partition-dims", 0, 1)]
)
def test_training_by_clusters(cli: Cli, own_graph: Path, options: tuple[object, ...]) -> None:
    done = cli("train", "--dataset", own_graph, *QUICK, *CLUSTERS, *options, "--json", "--out", "run")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["steps"] == 2 * 12 * 3
    assert record["config"]["sampler"]["clusters"] == 6
    assert record["config"]["sampler"]["clusters_per_batch"] == 2
    assert record["test"]["accuracy"] > 0.2
    scored = cli("evaluate", "run", "--json")  # on the whole graph, as the run was
    assert json.loads(scored.stdout)["test"] == pytest.approx(record["test"])


def test_without_clusters_the_config_says_so(cli: Cli, own_graph: Path) -> None:
    done = cli("train", "--dataset", own_graph, *QUICK, "--json")
    assert json.loads(done.stdout)["config"]["sampler"] is None


def test_digits_by_clusters(cli: Cli) -> None:
    done = cli("train", "--epochs", 60, *CLUSTERS[:2], "--clusters", 30, "--clusters-per-batch", 5, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["test"]["accuracy"] > 0.85


def test_cora_by_clusters(cli: Cli, shared_data: Path) -> None:
    """Planetoid's split: most clusters hold few training nodes or none."""
    sizes = ("--hidden", 64, 64, "--sub-gcns", 2, "--epochs", 40, "--clusters", 50, "--clusters-per-batch", 5)
    done = cli("train", "--dataset", "cora", "--data-root", shared_data, *sizes, *CLUSTERS[:2], "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["test"]["accuracy"] > 0.7


BAD = [
    (("--sampler", "clusters"), "add --clusters"),
    (("--sampler", "clusters", "--clusters", 0), "clusters is 0"),
    (("--sampler", "clusters", "--clusters", 41), "clusters is 41, expected an integer from 1 to 40"),
    (("--sampler", "clusters", "--clusters", 4), "clusters_per_batch is 10, more than the 4 clusters"),
    (("--sampler", "clusters", "--clusters", 4, "--clusters-per-batch", 0), "clusters_per_batch is 0"),
    (("--sampler", "clusters", "--clusters", "many"), "invalid int value: 'many'"),
    (("--sampler", "saint"), "invalid choice: 'saint'"),
    (("--clusters", 4), "clusters is given, but the sampler is full"),
    (("--batches", "shared"), "batches is given, but the sampler is full"),
    (("--cluster-method", "louvain"), "invalid choice: 'louvain'"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[" ".join(map(str, options)) for options, _ in BAD])
def test_bad_options(
    own_graph: Path, options: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_in_process(("train", *options, "--out", own_graph.parent / "run"), message, own_graph, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "required: --clusters"),
        (("--clusters", 41), "clusters is 41, expected an integer from 1 to 40"),
        (("--clusters", -1), "clusters is -1"),
        (("--clusters", 4, "--method", "best"), "invalid choice: 'best'"),
        (("--clusters", 4, "--seed", -1), "-1"),
        (("--clusters", 4, "--dataset", "corra"), "did you mean cora?"),
    ],
)
def test_bad_partitions(
    own_graph: Path, options: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_in_process(("partition", *options), message, own_graph, capsys)


def refused_in_process(
    command: tuple[object, ...], message: str, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*map(str, command), *(() if "--dataset" in command else ("--dataset", str(graph)))]
    try:
        status: object = main(given)
    except SystemExit as end:  # as argparse refuses
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2
    assert message in err
    assert err.count("\n") == 1, err
    assert out == ""
    assert [path.name for path in graph.parent.iterdir()] == ["own.npz"]
