"""`--model` for the models that the paper does not have."""

import json
from pathlib import Path

import pytest

from .conftest import Cli
from .in_process import refused

QUICK = ("--hidden", 16, 16, "--epochs", 80, "--local-steps", 3, "--lr", 0.01, "--sub-gcns", 2)
LADIES = ("--sampler", "ladies", "--batch-size", 5, "--nodes-per-layer", 6)
MODELS: dict[str, tuple[object, ...]] = {
    "gin": (*LADIES, "--runner", "fused"),
    "gatv2": ("--heads", 2, "--store", "disk"),
}


@pytest.mark.parametrize("model", MODELS)
def test_training_evaluation_and_plan(cli: Cli, own_graph: Path, model: str) -> None:
    how = ("--model", model, *QUICK, *MODELS[model])
    done = cli("train", "--dataset", own_graph, *how, "--evaluation", "layers", "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["config"]["model"]["name"] == model
    assert record["config"]["model"]["norm"] == ("layer" if model == "gin" else "none")
    assert record["test"]["accuracy"] > 0.6  # three classes
    scored = cli("evaluate", "run", "--evaluation", "whole", "--json")
    assert json.loads(scored.stdout)["test"] == pytest.approx(record["test"])
    plan = cli("plan", "--dataset", own_graph, *how, "--no-measure", "--json")
    assert plan.returncode == 0, plan.stderr
    assert plan.stderr == ""


def test_attention_is_refused_by_ladies(own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "LADIES", "train", "--dataset", own_graph, "--model", "gatv2", *QUICK, *LADIES)
