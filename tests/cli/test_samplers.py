"""`gistgnn train` by sampled batches."""

import json
from pathlib import Path

import pytest

from .conftest import Cli
from .test_clusters import refused_in_process

QUICK = ("--hidden", 8, 8, "--epochs", 24, "--local-steps", 3, "--lr", 0.05, "--sub-gcns", 2)
SAMPLERS: dict[str, tuple[object, ...]] = {
    "ladies": ("--batch-size", 5, "--nodes-per-layer", 6, "--no-row-normalise"),
    "fastgcn": ("--batch-size", 5, "--nodes-per-layer", 6, 7, 8),
    "neighbor": ("--batch-size", 5, "--fanout", -1, 2, 2),
    "saint-node": ("--batch-size", 20),
    "saint-edge": ("--batch-size", 10, "--batches", "independent"),
    "saint-rw": ("--batch-size", 6, "--walk-length", 3, "--sample-coverage", 50),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_training(cli: Cli, own_graph: Path, sampler: str) -> None:
    options = (*QUICK, "--sampler", sampler, *SAMPLERS[sampler], "--out", "run")
    done = cli("train", "--dataset", own_graph, *options, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    said = record["config"]["sampler"]
    assert said["name"] == sampler
    for option, value in zip(SAMPLERS[sampler], SAMPLERS[sampler][1:], strict=False):
        if option in ("--batch-size", "--walk-length", "--sample-coverage"):
            assert said[str(option)[2:].replace("-", "_")] == value
    assert record["test"]["accuracy"] > 0.2
    scored = cli("evaluate", "run", "--json")
    assert json.loads(scored.stdout)["test"] == pytest.approx(record["test"])
    again = cli("train", "--dataset", own_graph, *options, "--resume", "--json")
    assert json.loads(again.stdout) == record  # it was finished


def test_digits_by_ladies_fused(cli: Cli) -> None:
    done = cli("train", "--sampler", "ladies", "--epochs", 60, "--runner", "fused", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["test"]["accuracy"] > 0.85


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_plan(cli: Cli, sampler: str) -> None:
    done = cli("plan", "--sampler", sampler, "--sub-gcns", 1, 4, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["batch"]["nodes"] <= 1797
    assert all(option["seconds"]["epoch"] > 0 for option in plan["options"])


BAD = [
    (("--sampler", "laddies"), "invalid choice: 'laddies'"),
    (("--batch-size", 4), "batch_size is given, but the sampler is full: add --sampler ladies or"),
    (("--sampler", "clusters", "--clusters", 4, "--batch-size", 4), "batch_size is given, but the sampler is clusters"),
    (("--sampler", "ladies", "--fanout", 4), "fanout is given, but the sampler is ladies: add --sampler neighbor"),
    (("--sampler", "ladies", "--clusters", 4), "clusters is given, but the sampler is ladies"),
    (("--sampler", "neighbor", "--row-normalise"), "row_normalise is given, but the sampler is neighbor"),
    (("--sampler", "saint-node", "--walk-length", 4), "walk_length is given, but the sampler is saint-node"),
    (("--sampler", "ladies", "--batch-size", 0), "batch_size is 0, expected an integer >= 1"),
    (("--sampler", "ladies", "--nodes-per-layer", 4, 4), "nodes_per_layer has 2 numbers, the model 3 layers"),
    (("--sampler", "ladies", "--model", "gat"), "the model attends, which LADIES"),
    (("--sampler", "neighbor", "--fanout", 0), "fanouts is 0"),
    (("--sampler", "neighbor", "--fanout", 4, 4, 4, 4), "fanouts has 4 numbers, the model 3 layers"),
    (("--sampler", "saint-rw", "--sample-coverage", 0), "sample_coverage is 0"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[" ".join(map(str, options)) for options, _ in BAD])
def test_bad_options(
    own_graph: Path, options: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_in_process(("train", *options, "--out", own_graph.parent / "run"), message, own_graph, capsys)
