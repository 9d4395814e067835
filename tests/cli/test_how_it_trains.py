"""The options that say where sub-GCNs train, at which precision, and on what part of the graph."""

import json
from pathlib import Path
from typing import Any

import pytest

from .in_process import refused, run

QUICK = ("--hidden", 8, 8, "--epochs", 12, "--local-steps", 3, "--training", "each", "--sub-gcns", 2)
CLUSTERS = ("--sampler", "clusters", "--clusters", 6, "--clusters-per-batch", 2)


def record_of(capsys: pytest.CaptureFixture[str], graph: Path, *options: object) -> dict[str, Any]:
    """result.json of a run, and what it said on standard error."""
    capsys.readouterr()
    out = graph.parent / f"run{len(list(graph.parent.iterdir()))}"
    status = run("train", "--dataset", graph, *QUICK, *options, "--json", "--out", out)
    shown = capsys.readouterr()
    assert status == 0, shown.err
    return {**json.loads(shown.out), "said": shown.err}


def test_the_fused_runner_and_bf16(own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(capsys, own_graph, "--runner", "fused", "--precision", "bf16")
    assert record["config"]["runner"] == "fused"
    assert record["config"]["training"]["precision"] == "bf16"
    assert record["test"]["accuracy"] > 0.2
    assert "not fused" not in record["said"]


def test_independent_batches_are_not_fused(own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = record_of(capsys, own_graph, "--runner", "fused", *CLUSTERS, "--batches", "independent")["said"]
    assert said.count("note: the sub-GCNs train in turn, not fused: their batches are independent\n") == 1


def test_partition_fills_the_cache_of_inductive_training(
    own_graph: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = ("partition", "--dataset", own_graph, "--clusters", 6, "--json")
    assert run(*partition, "--inductive") == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert (facts["nodes"], facts["inductive"]) == (13, True)
    assert "METIS cuts 13 nodes" in shown.err
    assert len(list(cache_folder.iterdir())) == 1
    record = record_of(capsys, own_graph, *CLUSTERS, "--inductive")
    assert "METIS" not in record["said"]
    assert record["config"]["inductive"] is True
    assert "METIS cuts 40 nodes" in record_of(capsys, own_graph, *CLUSTERS)["said"]
    refused(capsys, "from 1 to 13", "partition", "--dataset", own_graph, "--clusters", 14, "--inductive")
    inductive = ("train", "--dataset", own_graph, *CLUSTERS[:2], "--clusters", 14, "--inductive")
    refused(capsys, "from 1 to 13, the nodes to be clustered", *inductive)


def test_precompute(own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = (*CLUSTERS, "--cluster-method", "random")
    assert record_of(capsys, own_graph, *random)["config"]["sampler"]["precompute"] is True
    assert record_of(capsys, own_graph, *random, "--no-precompute")["config"]["sampler"]["precompute"] is False


REFUSED = [
    (("--runner", "ray"), "invalid choice: 'ray'"),
    (("--precision", "fp16"), "invalid choice: 'fp16'"),
    (("--no-precompute",), "precompute is given, but the sampler is full"),
    (("--heads", 4), "heads is given, but the model is gcn: add --model gat"),
    (("--model", "graphsage", "--heads", 2), "heads is given, but the model is graphsage"),
    (("--momentum", 0.9), "momentum is 0.9, but the optimizer is adam: use sgd"),
    (("--optimizer", "adamw", "--momentum", 0.5), "momentum is 0.5, but the optimizer is adamw"),
    (("--hidden", 16, 8, "--sub-gcns", 9), "sub_gcns is 9, more than the 8 features of d_2: use at most 8"),
    (("--partition-dims", 0, 1, "--sub-gcns", 4), "sub_gcns is 4, more than the 3 features of d_0"),
    (("--hidden", 8, 8, "--partition-dims", 2, "--sub-gcns", 9), "8 features of d_2"),
    (("--partition", "categorical", "--hidden", 9, "--sub-gcns", 8), "9 features of d_1, sent to 8 sub-GCNs"),
    (("--model", "gat", "--hidden", 8, "--heads", 2, "--sub-gcns", 9), "8 features of d_1"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[" ".join(map(str, options)) for options, _ in REFUSED])
def test_refused(
    own_graph: Path, options: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = own_graph.parent / "run"
    refused(capsys, message, "train", "--dataset", own_graph, *options, "--out", out, leaves=own_graph.parent)
