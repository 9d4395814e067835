"""--evaluation of train, evaluate and predict."""

import json
from pathlib import Path

import numpy as np
import pytest

from .conftest import Cli, arrays

TRAIN = ("train", "--hidden", 8, 8, "--epochs", 10, "--training", "each", "--local-steps", 5, "--sub-gcns", 2)


def train(cli: Cli, graph: Path, *options: object, out: str = "run") -> dict:
    done = cli(*TRAIN, "--dataset", graph, "--out", out, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("method", ["auto", "whole", "layers"])
def test_exact_methods_give_one_result(cli: Cli, own_graph: Path, method: str) -> None:
    plain = train(cli, own_graph, out="plain")
    memory = () if method == "whole" else ("--evaluation-memory", 0.5)
    found = train(cli, own_graph, "--evaluation", method, *memory)
    assert found["evaluation"]["method"] == (method if method != "auto" else "whole")
    assert found["evaluation"]["exact"] is True
    assert found["test"] == plain["test"]
    assert found["config"]["evaluation"] == {
        "method": method,
        "memory": None if method == "whole" else 2**29,
        "parts": None,
        "sample": None,
    }
    scored = json.loads(cli("evaluate", "run", "--evaluation", method, "--json").stdout)
    assert scored["evaluation"]["exact"] is True
    assert scored["test"] == pytest.approx(found["test"])
    assert list(scored) == ["train", "validation", "test", "evaluation"]


def test_by_parts_is_said_to_be_approximate(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    done = cli(*TRAIN, "--dataset", own_graph, "--out", "run", "--evaluation", "parts", "--parts", 4)
    assert "approximate, by 4 parts" in done.stdout
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert record["evaluation"] == {"method": "parts", "exact": False, "parts": 4}
    assert "approximate, by 4 parts" in cli("evaluate", "run").stdout  # as the run
    assert "approximate, by 3 parts" in cli("evaluate", "run", "--parts", 3).stdout
    assert "approximate" not in cli("evaluate", "run", "--evaluation", "layers").stdout
    assert "(approximate, by 4 parts)" in cli("predict", "run", "--output", "p.csv").stderr
    assert "approximate" not in cli("predict", "run", "--output", "w.csv", "--evaluation", "whole").stderr
    one = cli("predict", "run", "--output", "one.csv", "--evaluation", "parts", "--parts", 1)
    assert one.returncode == 0
    rows = [np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1) for name in ("w", "one")]
    np.testing.assert_allclose(*rows, atol=1e-5)


def test_several_labels(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["y"] = np.eye(3, dtype=np.float32)[graph["y"]]
    np.savez(tmp_path / "multi.npz", **graph)
    plain = train(cli, tmp_path / "multi.npz", out="plain")
    assert train(cli, tmp_path / "multi.npz", "--evaluation", "layers")["test"] == plain["test"]
    assert cli("predict", "run", "--output", "p.csv", "--evaluation", "parts", "--parts", 2).returncode == 0
    assert cli("evaluate", "run", "--evaluation", "parts", "--parts", 2).returncode == 0


def test_a_finished_run_is_not_trained_again(cli: Cli, own_graph: Path) -> None:
    record = train(cli, own_graph)
    assert train(cli, own_graph, "--resume", "--evaluation-memory", 1) == record
    assert cli(*TRAIN, "--dataset", own_graph, "--out", "run", "--resume").returncode == 0
    assert json.loads(cli("evaluate", "run", "--json").stdout)["test"] == pytest.approx(record["test"])
    other = cli(*TRAIN, "--dataset", own_graph, "--out", "run", "--resume", "--evaluation", "parts", "--parts", 2)
    assert other.returncode == 2
    assert "evaluation was None, now {'parts': 2}" in other.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--evaluation", "fast"), "invalid choice: 'fast'"),
        (("--evaluation", "parts"), "by parts, but parts is not given"),
        (("--parts", 3), "parts is 3, but the evaluation is auto"),
        (("--evaluation", "parts", "--parts", 0), "'0' is not an integer >= 1"),
        (("--evaluation", "parts", "--parts", 999), "parts is 999, expected 1 to 40"),
        (("--evaluation-memory", 0), "'0' is not a number of GiB above 0"),
        (("--evaluation-memory", "nan"), "'nan' is not a number of GiB above 0"),
        (("--evaluation-memory", "inf"), "'inf' is not a number of GiB above 0"),
        (("--evaluation", "whole", "--evaluation-memory", 1), "memory is given, but the evaluation is whole"),
        (("--evaluation", "layers", "--evaluation-memory", 1e-6), "this model needs"),
    ],
)
def test_bad_options(cli: Cli, tmp_path: Path, own_graph: Path, options: tuple[object, ...], said: str) -> None:
    done = cli(*TRAIN, "--dataset", own_graph, "--out", "run", *options)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
