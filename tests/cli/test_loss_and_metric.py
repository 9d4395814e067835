"""Losses, metrics and a time limit from the shell."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import refused, run

SMALL = ("--hidden", 8, "--epochs", 4, "--sub-gcns", 2)


def trained(out: Path, *args: object) -> dict[str, Any]:
    assert run("train", *SMALL, "--out", out, *args) == 0
    record: dict[str, Any] = json.loads((out / "result.json").read_text())
    return record


def test_the_record_names_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_scores.py").write_text(
        "def errors(logits, y):\n    return (logits.argmax(1) != y).float().mean()\n"
    )
    (tmp_path / "own_scores.py").open("a").write("errors.higher_is_better = False\n")
    monkeypatch.chdir(tmp_path)
    plain = trained(tmp_path / "plain")
    assert not plain["config"]["training"].keys() & {"loss", "metric", "class_weights"}
    record = trained(
        tmp_path / "run", "--class-weights", "balanced", "--label-smoothing", 0.1, "--metric", "own_scores:errors"
    )
    training = record["config"]["training"]
    assert (training["class_weights"], training["label_smoothing"]) == ("balanced", 0.1)
    assert training["metric"] == record["metric"]["name"] == "own_scores:errors"
    assert record["test"]["own_scores:errors"] == pytest.approx(1 - record["test"]["accuracy"])
    assert record["validation"]["own_scores:errors"] == min(entry["validation"] for entry in record["history"])
    assert record["history"][0]["loss"] != plain["history"][0]["loss"]
    assert "own_scores:errors" in (tmp_path / "run/report.html").read_text()
    assert run("evaluate", tmp_path / "run") == 0


def test_a_run_ends_in_time(tmp_path: Path) -> None:
    record = trained(tmp_path / "run", "--max-seconds", "1s", "--epochs", 10**6)  # the process is older than a second
    assert (record["rounds"], record["stopped_by"]) == (1, "max_seconds")
    assert "because its time was up" in (tmp_path / "run/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--loss hinge", "loss is 'hinge', expected one of cross-entropy"),
        ("--loss mse", "the loss is mse, but the targets are classes"),
        ("--metric acc", "metric is 'acc', expected one of accuracy"),
        ("--metric os:getcwd", "the metric os:getcwd fails"),
        ("--loss nothing.there:loss", "cannot be imported"),
        ("--class-weights equal", "expected balanced, or a number for each class"),
        ("--class-weights 1 2", "class_weights has 2 numbers, expected 10"),
        ("--class-weights balanced --loss math:sqrt", "class_weights is given beside the loss math:sqrt"),
        ("--label-smoothing 1", "label_smoothing is 1.0, expected a number >= 0 and < 1"),
        ("--max-seconds soon", "'soon' is not a time"),
        ("--max-seconds 1min --budget 1min", "max_seconds is"),
    ],
)
def test_bad_values_are_refused(words: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    epochs = () if "budget" in words else ("--epochs", 4)
    refused(capsys, message, "train", "--hidden", 8, *epochs, "--out", tmp_path / "run", *words.split())
