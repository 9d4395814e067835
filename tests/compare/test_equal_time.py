"""`gistgnn compare --budget`: every run trains for the same time, and its schedule ends then."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gistgnn.compare.equal_time import TIMINGS, runs_within
from gistgnn.compare.many_runs import RunStore
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from tests.cli.in_process import refused, run

START = 0.3  # seconds that every run takes once


class PretendedStore(RunStore):
    """Pretends to train: an epoch takes 0.05 s for each layer's width, and a run 0.3 s more.

    Of the three runs that differ in their seed, other work makes the first one take ten times as
    long.
    """

    def __init__(self) -> None:
        self.trained: list[RunConfig] = []

    def run_all(self, configs: Iterable[RunConfig], label: str) -> list[Any]:
        records = []
        for config in configs:
            self.trained.append(config)
            epochs = config.training.all_epochs
            seconds = START + 0.05 * config.model.hidden[0] * epochs
            if len(self.trained) > 2 and config.seed == TIMINGS[0]:
                seconds *= 10
            per_round = [{"epoch": epochs}]
            records.append(SimpleNamespace(train_seconds=seconds, per_round=per_round))
        return records


def test_runs_have_the_epochs_that_fit_into_the_time() -> None:
    base = RunConfig("digits", ModelConfig(hidden=(4,)), training=Training(7, patience=3))
    wide = replace(base, model=ModelConfig(hidden=(40,)), method="parts", sub_gcns=2)
    store = PretendedStore()
    one, other, budget = runs_within(store, [base, wide], 100.0)
    for config, width in ((one, 4), (other, 40)):
        seconds = START + 0.05 * width * config.training.all_epochs
        assert seconds == pytest.approx(100, rel=0.05)
        assert config.training.schedule == "cosine"
        assert config.training.patience == 3
    assert replace(other, training=wide.training) == wide
    assert budget.training.budget == 100
    # First every worker trains for two epochs, and then for a tenth of the time.
    assert [config.training.epochs for config in store.trained[:2]] == [2, 4]
    for config in store.trained[2:]:
        seconds = 0.05 * config.model.hidden[0] * config.training.all_epochs
        assert 5 < seconds <= 10.1
        assert config.training.patience is None
    assert len(store.trained) == 2 + 2 * len(TIMINGS)


COMPARE = (
    *("compare", "--dataset", "digits", "--hidden", 16, 16, "--sub-gcns", 2),
    *("--methods", "parts", "--budget", "1s"),
)


def test_the_command_trains_every_row_for_the_budget_and_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(*COMPARE, "--out", out) == 0
    assert "1 s of training each" in capsys.readouterr().out
    record = json.loads((out / "comparison.json").read_text())
    names = [row["name"] for row in record["rows"]]
    assert names[0].startswith("one device, ")
    assert names[-1] == "a budget, norm none"
    assert len(names) == 3
    for row, curve in zip(record["rows"][:2], record["curves"][:2], strict=True):
        norm, _, epochs_of_row = row["detail"].partition(", ")
        assert norm.startswith("norm "), "a GCN has one at m > 1 alone"
        epochs = float(epochs_of_row.removesuffix(" epochs"))
        assert curve["epoch"][-1] == pytest.approx(epochs), "the schedule ends with the run"
        assert curve["seconds"] == sorted(curve["seconds"])
    times = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert run(*COMPARE, "--out", out) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == times
    refused(capsys, "--epochs is given beside a budget", *COMPARE, "--epochs", 3, "--out", out)
