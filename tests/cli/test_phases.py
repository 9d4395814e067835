"""Phases, kept blocks and budgets on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from .conftest import Cli

QUICK = ("--hidden", 8, 8, "--local-steps", 3, "--schedule", "constant")
KEPT = ("--redraw-every", 0, "--cross-weights", "zero")


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return record


def test_phases_follow_each_other(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    phases = ("--phases", "4:6,copies", "4:12,lr=0.005", "2:4,schedule=cosine,redraw=1", "1:0.5")
    done = cli("train", "--dataset", own_graph, *QUICK, *KEPT, *phases, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "m = 4 (copies), 4, 2, 1" in done.stdout
    record = record_of(tmp_path / "run")
    assert record["config"]["sub_gcns"] == 4
    assert record["config"]["training"]["epochs"] == 22.5
    assert [phase["sub_gcns"] for phase in record["config"]["training"]["phases"]] == [4, 4, 2, 1]
    assert record["steps"] == 6 + 12 + 4 + 1
    assert [entry["lr"] for entry in record["history"]][:3] == [0.01, 0.01, 0.005]
    assert "m = 4 (copies), 4, 2, 1" in (tmp_path / "run/report.html").read_text()
    assert cli("evaluate", "run").returncode == 0


def test_a_finished_run_is_recognised_and_another_refused(cli: Cli, own_graph: Path) -> None:
    run = ("train", "--dataset", own_graph, *QUICK, "--out", "run", "--resume")
    assert cli(*run, "--phases", "2:6", "1:2").returncode == 0
    assert cli(*run, "--phases", "2:6", "1:2").returncode == 0
    other = cli(*run, "--phases", "2:6", "1:3")
    assert other.returncode == 2
    assert "phases" in other.stderr or "epochs" in other.stderr


def test_copies_leave_zeros_between_their_blocks(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert cli("train", "--dataset", own_graph, *QUICK, *KEPT, "--phases", "4:9,copies", "--out", "run").returncode == 0
    weight = load_file(tmp_path / "run/model.safetensors")["convs.1.weight"]
    assert int((weight != 0).sum()) == 4 * 2 * 2


def test_weights_that_no_round_trains_are_announced(cli: Cli, own_graph: Path) -> None:
    done = cli(
        "train", "--dataset", own_graph, *QUICK, "--redraw-every", 0, "--sub-gcns", 4, "--epochs", 12, "--out", "a"
    )
    assert "of the parameters will never be trained" in done.stderr
    done = cli("train", "--dataset", own_graph, *QUICK, "--phases", "4:12", "1:1", "--out", "b")
    assert "never be trained" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--phases", "8"), "'8' is not a phase"),
        (("--phases", "8:x"), "'8:x' is not a phase"),
        (("--phases", "8:2,colour=red"), "is not a phase"),
        (("--phases", "8:2,lr=fast"), "is not a phase"),
        (("--phases", "0:2"), "sub_gcns is 0"),
        (("--phases", "2:0"), "epochs is 0"),
        (("--phases", "2:4,copies,redraw=1"), "copies"),
        (("--phases", "2:4,copies"), "cross_weights is 'random'"),
        (("--phases", "2:4", "--sub-gcns", 2), "leave --sub-gcns out"),
        (("--phases", "2:4", "--epochs", 9), "leave epochs out"),
        (("--phases", "2:4,lr=-1"), "lr is -1"),
        (("--phases", "2:4,schedule=never"), "schedule is 'never'"),
        (("--phases", "3:4,copies", *KEPT), "equal blocks"),
        (("--phases", "3:4", "2:4", "--redraw-every", 0), "one divides the other"),
        (("--phases", "9:4"), "sub_gcns is 9"),
        (("--phases", "2:4", "1:1", "--method", "ensemble"), "phases is given, but the method is ensemble"),
        (("--redraw-every", -1), "redraw_every is -1"),
        (("--budget", "soon"), "'soon' is not a time"),
        (("--budget", "0s"), "'0s' is not a time"),
        (("--budget", "9s", "--epochs", 3), "beside a budget"),
        (("--budget", "9s", "--phases", "1:3"), "beside a budget"),
        (("--budget", "9s", "--sub-gcns", 3), "leave one out"),
        (("--budget", "9s", "--method", "local-sgd"), "local-sgd"),
    ],
)
def test_what_does_not_go_together(cli: Cli, tmp_path: Path, own_graph: Path, options: Any, said: str) -> None:
    done = cli("train", "--dataset", own_graph, "--hidden", 8, 8, *options, "--out", "run")
    assert done.returncode == 2
    assert said in done.stderr
    assert len([line for line in done.stderr.splitlines() if "error" in line]) == 1
    assert not (tmp_path / "run").exists()


def test_a_budget_needs_nothing_else(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    done = cli("train", "--dataset", own_graph, "--hidden", 256, 256, "--budget", "3s", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "epochs fit into the time" in done.stderr
    record = record_of(tmp_path / "run")
    assert record["config"]["training"]["budget"] == 3
    chosen = record["budget"]["training"]
    assert sum(phase["epochs"] for phase in chosen["phases"]) == pytest.approx(record["history"][-1]["epoch"])
    assert set(record["budget"]["step_seconds"]) <= {"1", "2"}
    assert (
        cli(
            "train", "--dataset", own_graph, "--hidden", 256, 256, "--budget", "3s", "--out", "run", "--resume"
        ).returncode
        == 0
    )
