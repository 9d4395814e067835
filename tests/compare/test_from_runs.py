"""The comparison of finished runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from gistgnn.cli.main import main
from gistgnn.compare.from_runs import compare_runs
from gistgnn.errors import InputError
from tests.cli.in_process import refused, run
from tests.helpers.records import rewrite

TRAIN = ("train", "--hidden", 8, "--epochs", 8, "--local-steps", 2, "--json", "--device", "cpu")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by GIST with two seeds, one with another learning rate, and ordinary training."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in {
        "first": ("--sub-gcns", 2),
        "again": ("--sub-gcns", 2, "--seed", 1),
        "faster": ("--sub-gcns", 2, "--lr", 0.1),
        "ordinary": ("--sub-gcns", 1),
    }.items():
        assert main([*map(str, (*TRAIN, *options, "--out", folder / name))]) == 0
    return folder


def test_seeds_share_a_row_and_settings_that_differ_are_named(runs: Path) -> None:
    rows, record = compare_runs([runs / name for name in ("first", "again", "faster", "ordinary")], 0.5)
    assert [len(row.score) for row in rows] == [1, 2, 1]
    assert rows[0].sub_gcns == 1, "ordinary training is the baseline"
    assert [row.detail for row in rows] == ["lr 0.01", "lr 0.02", "lr 0.1"]
    assert rows[2].label == "GIST, lr 0.1, m = 2"
    assert rows[1].speedup is not None
    assert record["title"] == "4 runs on digits"
    assert [curve["label"] for curve in record["curves"]] == [row.label for row in rows]
    assert len(record["config"]) == 4


def test_the_command_writes_the_page_and_trains_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(runs.rglob("*"))
    assert run("compare", runs / "first", runs / "faster", "--out", "page") == 0
    assert "GIST, lr 0.1" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "comparison.json",
        "comparison.md",
        "report.html",
    ]
    assert "lr 0.1" in (tmp_path / "page/report.html").read_text()
    assert sorted(runs.rglob("*")) == before


def test_runs_on_other_machines_and_interrupted_ones_are_noted(runs: Path, tmp_path: Path) -> None:
    record: dict[str, Any] = json.loads((runs / "faster/result.json").read_text())
    record["provenance"]["machine"] = "another CPU"
    rewrite(tmp_path / "other", {**record, "interrupted": True})
    _, compared = compare_runs([runs / "first", tmp_path / "other"], 0.5)
    notes = " ".join(compared["notes"])
    assert "times cannot be compared" in notes
    assert "other was interrupted" in notes
    assert "another CPU" in compared["machine"]


def test_bad_input(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare = ("compare", "--out", tmp_path / "page")
    refused(capsys, "holds no result.json", *compare, runs / "first", tmp_path)
    refused(capsys, "two different runs or more", *compare, runs / "first")
    refused(capsys, "two different runs or more", *compare, runs / "first", runs / "again")
    refused(capsys, "--epochs is given beside folders", *compare, runs / "first", runs / "faster", "--epochs", 3)
    record = json.loads((runs / "faster/result.json").read_text())
    rewrite(tmp_path / "cora", {**record, "graph": {**record["graph"], "name": "cora"}})
    with pytest.raises(InputError, match=r"is of the graph digits, .* of cora"):
        compare_runs([runs / "first", tmp_path / "cora"], 0.5)


def test_runs_are_listed(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("list", runs) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "graph", "model", "trained", "by", "test", "training", "date", "state"]
    assert sorted(line.split()[0] for line in lines) == sorted(str(path) for path in runs.iterdir())
    assert "digits GCN 8 GIST, m = 2" in " ".join(lines[0].split())
    assert "one device" in "".join(lines)
    assert run("list", runs, "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {each["state"] for each in listed} == {"finished"}
    assert all(0 <= each["test"] <= 1 for each in listed)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/result.json").write_text("{")
    assert run("list", tmp_path) == 0
    assert "unreadable" in capsys.readouterr().out
    assert run("list", runs / "first", runs / "faster", tmp_path, runs) == 0  # each run once
    assert len(capsys.readouterr().out.splitlines()) == len(lines) + 2
    refused(capsys, "is not a folder", "list", tmp_path / "nothing")
