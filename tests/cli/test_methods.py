"""`gistgnn train --method`: what GIST is compared with, as a user calls it."""

import json
from pathlib import Path

import pytest

from .in_process import refused, run

QUICK = ("--hidden", 8, 8, "--epochs", 6, "--local-steps", 2, "--training", "each", "--sub-gcns", 2)
CLUSTERS = ("--sampler", "clusters", "--clusters", 4, "--clusters-per-batch", 2, "--cluster-method", "random")


@pytest.mark.parametrize("method", ["data-parallel", "local-sgd", "ensemble"])
def test_a_run_is_trained_scored_and_used(
    method: str, tmp_path: Path, own_graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "--method", method, "--dataset", own_graph, *QUICK, *CLUSTERS, "--out", tmp_path / "run")
    assert run(*train) == 0
    assert f"{method}, m = 2" in capsys.readouterr().out
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["config"]["method"] == method
    assert record["traffic"]["workers"] == 2
    assert run(*train, "--resume") == 0  # it is finished
    capsys.readouterr()
    assert run("evaluate", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"] == record["test"]
    assert run("predict", tmp_path / "run", "--output", tmp_path / "classes.csv") == 0
    assert "report.html" in {path.name for path in (tmp_path / "run").iterdir()}


def test_an_ensemble_is_one_model_of_its_members(tmp_path: Path, own_graph: Path) -> None:
    from safetensors.torch import load_file

    assert run("train", "--method", "ensemble", "--dataset", own_graph, *QUICK, "--out", tmp_path / "run") == 0
    names = load_file(tmp_path / "run/model.safetensors")
    assert {name.split(".")[1] for name in names} == {"0", "1"}
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["config"]["training"]["optimizer_state"] == "carry"
    assert record["test"] == record["last"]["test"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "best"), "invalid choice: 'best'"),
        (("--method", "local-sgd"), "local-sgd gives each worker its own batches, but the sampler is full"),
        (("--method", "data-parallel"), "data-parallel gives each worker"),
        (("--method", "local-sgd", *CLUSTERS, "--partition-dims", 1), "the method is local-sgd, which splits nothing"),
        (("--method", "data-parallel", *CLUSTERS, "--partition", "categorical"), "which splits nothing"),
        (("--method", "data-parallel", *CLUSTERS, "--store", "disk"), "data-parallel holds all of Θ in memory"),
        (("--method", "data-parallel", *CLUSTERS, "--sub-gcns", 0), "workers is 0"),
        (("--method", "ensemble", "--partition-dims", 0, 1), "an ensemble's members see all of them"),
        (("--method", "ensemble", "--store", "disk"), "ensemble holds all of Θ in memory"),
        (("--method", "ensemble", "--sub-gcns", 9), "sub_gcns is 9, more than the 8 features of d_1"),
    ],
)
def test_bad_options(
    options: tuple[object, ...], message: str, tmp_path: Path, own_graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", tmp_path / "run")
    refused(capsys, message, "train", "--dataset", own_graph, *QUICK, *options, *out, leaves=tmp_path)


def test_tensorboard_s_events_lie_beside_the_result(tmp_path: Path, own_graph: Path) -> None:
    assert run("train", "--dataset", own_graph, *QUICK, "--tensorboard", "--out", tmp_path / "run") == 0
    assert len(list((tmp_path / "run/tensorboard").glob("events.out.tfevents.*"))) == 1
