"""Models in shards and models whose weights stay in their files; scores over a sample of the parts."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from gistgnn import load_run
from gistgnn.storage import tensors
from gistgnn.storage.models import INDEX, SINGLE, write_model
from tests.helpers.records import rewrite

from .conftest import Cli
from .in_process import refused, run

TRAIN = ("train", "--model", "graphsage", "--hidden", 16, 16, "--epochs", 10, "--training", "each", "--out", "run")
PARTS = ("--evaluation", "parts", "--parts", 4)


@pytest.fixture
def folder(tmp_path: Path, own_graph: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> dict:
    capsys.readouterr()
    assert run(*args, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_model_in_shards_is_evaluated(cli: Cli, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = printed(capsys, *TRAIN, "--dataset", "own.npz")
    files = write_model(folder / "run", load_file(folder / "run" / SINGLE), 500)
    kept = {name: digest for name, digest in record["files"].items() if name != SINGLE}
    rewrite(folder / "run", {**record, "files": {**kept, **files}})
    assert not (folder / "run" / SINGLE).exists()
    assert len(list((folder / "run").glob("model-*.safetensors"))) > 2
    assert json.loads(cli("evaluate", "run", "--json").stdout)["test"] == pytest.approx(record["test"])
    assert run(*TRAIN, "--dataset", "own.npz", "--resume") == 0
    assert f"{Path('run') / INDEX}, " in capsys.readouterr().out
    (folder / "run" / INDEX).unlink()
    refused(capsys, f"{INDEX} cannot be read (No such file", "predict", "run", "--output", "p.csv")


def test_the_large_weights_of_a_model_are_mapped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = printed(capsys, *TRAIN, "--dataset", "own.npz")
    monkeypatch.setattr(tensors, "LARGE", 300)
    for method in ("whole", "layers", "auto"):
        assert printed(capsys, "evaluate", "run", "--evaluation", method)["test"] == pytest.approx(record["test"])
    model = load_run(folder / "run").model
    assert str(folder / "run" / SINGLE) in Path("/proc/self/maps").read_text()
    model.convs[0].weight.data.zero_()
    assert load_file(folder / "run" / SINGLE)["convs.0.weight"].count_nonzero()


def test_scores_over_a_sample(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = ("--dataset", "own.npz", *PARTS, "--parts-sample", 3)
    record = printed(capsys, *TRAIN, *sample)
    assert record["config"]["evaluation"] == {"method": "parts", "memory": None, "parts": 4, "sample": 3}
    how = record["evaluation"]
    assert how.keys() == {"method", "exact", "parts", "sample", "nodes"}
    assert (how["method"], how["exact"], how["parts"], how["sample"]) == ("parts", False, 4, 3)
    assert 20 < sum(how["nodes"].values()) < 40
    found = printed(capsys, "evaluate", "run")
    assert found["evaluation"] == how
    assert found["test"] == pytest.approx(record["test"])
    assert printed(capsys, "evaluate", "run", "--parts", 4)["evaluation"] == {
        "method": "parts",
        "exact": False,
        "parts": 4,
    }
    assert printed(capsys, "evaluate", "run", "--parts-sample", 4)["evaluation"]["sample"] == 4
    capsys.readouterr()
    assert run("evaluate", "run") == 0
    assert "approximate, by 3 of 4 parts" in capsys.readouterr().out
    assert run("predict", "run", "--output", "p.csv") == 0
    assert "40 nodes written to p.csv (approximate, by 4 parts)" in capsys.readouterr().err
    assert not np.isnan(np.loadtxt("p.csv", delimiter=",", skiprows=1)).any()
    refused(capsys, "run: evaluation was {'parts': 4, 'sample': 3}, now {'parts': 4}", *TRAIN, *sample[:-2], "--resume")


def test_samples_that_cannot_be(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = (*TRAIN, "--dataset", "own.npz")
    refused(capsys, "sample is 3, expected at most parts, which is None", *train, "--parts-sample", 3)
    refused(capsys, "sample is 5, expected at most parts, which is 4", *train, *PARTS, "--parts-sample", 5)
    assert run(*train, "--evaluation", "parts", "--parts", 20, "--parts-sample", 1) == 2
    assert "parts has no validation node: raise the sample" in capsys.readouterr().err
    assert not (folder / "run" / "result.json").exists()
    assert run("predict", "run", "--output", "p.csv", "--parts-sample", 3) == 2
    assert "unrecognized arguments: --parts-sample 3" in capsys.readouterr().err
