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
