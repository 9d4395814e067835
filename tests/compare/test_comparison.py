"""What a comparison says of its runs, trained for it or finished; the command; `gistgnn list`."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from gistgnn import load_run
from gistgnn.compare.comparison import compare_runs, rows_of, speedup, table_record
from gistgnn.report.pages import comparison_table
from gistgnn.storage.json_files import write_json
from tests.cli.in_process import refused, run, wait_until
from tests.helpers.commands import command, start
from tests.report.records import scored


def rewrite(folder: Path, record: dict[str, Any]) -> None:
    """Write a run's result.json with a checksum that fits."""
    entries = {name: value for name, value in record.items() if name != "checksum"}
    write_json(folder / "result.json", entries)


BASE = [scored(1, [0.5, 0.8, 0.9], [10, 20, 30]), scored(1, [0.5, 0.88, 0.9], [12, 24, 36])]
CLOSE = [scored(4, [0.6, 0.9], [3, 6], "local-sgd"), scored(4, [0.6, 0.9], [4, 8], "local-sgd")]
WORSE = [scored(2, [0.7, 0.896], [4, 10]), scored(2, [0.7, 0.85], [5, 12])]


def test_rows_sum_up_their_seeds() -> None:
    groups = [BASE, CLOSE, WORSE]
    rows = rows_of(groups)
    base, close, worse = rows
    assert (base.score, base.times_faster(base), base.seconds_to) == ((90.0, 90.0), 1.0, (30, 36))
    assert close.label == "local SGD, m = 4"
    assert close.seconds == close.seconds_to == (6, 8)
    assert close.times_faster(base) == close.times_sooner(base) == pytest.approx(33 / 7)
    assert close.bytes == 600
    assert worse.seconds_to == (10, None)
    assert worse.times_sooner(base) is None
    assert worse.mean == pytest.approx(87.3)
    assert rows_of([BASE[:1], CLOSE])[1].seconds_to == (6, 8), "seeds need not correspond"
    # The speed-up of the last one is in brackets, as it costs more than a point.
    assert [speedup(row, base) for row in rows] == ["1.00x", "4.71x", "(3.00x)"]
    columns, cells = comparison_table(table_record("", rows, groups))
    assert all(len(row) == len(columns) for row in cells)
    assert [row[3] for row in cells] == ["1.0×", "4.7×", "(3.0×)"]
    assert cells[2][4] == "10.00 (1 of 2)"


def test_a_goal_is_of_the_same_seed_or_of_all() -> None:
    """The baselines end at 90 and 80 per cent: the goals are 89.5 and 79.5, or their mean, 84.5."""
    base = [scored(1, [0.9], [1]), scored(1, [0.8], [1])]
    gist = [scored(2, [0.8, 0.86], [1, 2]), scored(2, [0.8, 0.9], [3, 4])]
    for record, seed in zip([*base, *gist], (0, 1, 0, 1), strict=True):
        record.config["seed"] = seed
    assert rows_of([base, gist])[1].seconds_to == (None, 3)
    gist[0].config["seed"] = 7
    assert rows_of([base, gist])[1].seconds_to == (2, 4)


def test_a_budget_is_not_one_device() -> None:
    run = scored(1, [0.5, 0.8], [1, 2])
    run.config["training"]["budget"] = 9.0
    assert [row.label for row in rows_of([BASE[:1], [run]])] == ["one device", "a budget"]


def test_a_run_that_diverged_at_once_counts_as_nothing() -> None:
    lost = scored(2, [0.1], [1.0], test={}, validation={}, diverged="in round 1")
    lost.history = []
    lost.inference_seconds = None
    lost.train_seconds = 0.0
    lost.rounds = 0
    lost.steps = 0
    groups = [BASE[:1], [lost]]
    base, row = rows_of(groups)
    assert (row.score, row.seconds_to) == ((0.0,), (None,))
    assert row.times_faster(base) is None
    assert row.inference is None
    assert speedup(row, base) == "–"
    assert comparison_table(table_record("", [base, row], groups))[1][1][3:8] == ["–"] * 5
    lost_first, other = rows_of([[lost], BASE[:1]])
    assert other.times_faster(lost_first) is None


def test_curves_are_the_history_and_bytes_follow_from_rounds_or_steps() -> None:
    per_step = scored(
        2, [0.1, 0.2], [1, 2], "data-parallel", traffic={"workers": 2, "bytes_per_step": 7.0}
    )
    groups = [CLOSE, [per_step]]
    rows = rows_of(groups)
    assert [row.bytes for row in rows] == [600, 7 * 10]
    curve, _ = table_record("", rows, groups)["curves"]
    assert (curve["score"], curve["seconds"]) == ([60.0, 90.0], [3, 6])


OPTIONS = (
    *("--hidden", 16, 16, "--epochs", 4, "--local-steps", 2, "--sub-gcns", 2),
    *("--methods", "gist", "local-sgd", "--seeds", 2),
)


def test_the_command_writes_a_row_for_each_method_and_trains_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("compare", *OPTIONS, "--out", out) == 0
    assert "local SGD" in capsys.readouterr().out
    written = json.loads((out / "comparison.json").read_text())
    assert [(row["method"], row["sub_gcns"]) for row in written["rows"]] == [
        ("gist", 1),
        ("gist", 2),
        ("local-sgd", 2),
    ]
    assert [len(row["score"]) for row in written["rows"]] == [2] * 3
    # Local SGD needs batches, so all methods train by clusters, though digits are a small graph.
    assert written["config"]["sampler"]["name"] == "clusters"
    assert "<svg" in (out / "report.html").read_text()
    times = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(times) == 6
    assert run("compare", *OPTIONS, "--out", out, "--json") == 0  # nothing is run again
    assert json.loads(capsys.readouterr().out)["rows"] == written["rows"]
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == times


@pytest.mark.one_in(2)
@pytest.mark.parametrize("norm", [(), ("--norm", "batch")])
def test_every_row_is_the_run_that_train_makes_of_the_same_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], norm: tuple[str, ...]
) -> None:
    """A GCN has a norm at m > 1 alone, so the rows are of two models, unless --norm is given."""
    options = ("--hidden", 16, "--epochs", 4, "--local-steps", 2, *norm, "--json")
    out = tmp_path / "comparison"
    assert run("compare", *options, "--sub-gcns", 2, "--out", out) == 0
    comparison = json.loads(capsys.readouterr().out)
    norms = []
    for row in comparison["rows"]:
        trained = tmp_path / f"m{row['sub_gcns']}"
        assert run("train", *options, "--sub-gcns", row["sub_gcns"], "--out", trained) == 0
        record = json.loads(capsys.readouterr().out)
        assert row["score"] == [pytest.approx(100 * record["test"]["accuracy"], abs=1e-12)]
        norms.append(record["config"]["model"]["norm"])
        has_norm = f"norm {norms[-1]}" in row["name"]
        assert has_norm == (not norm), "the norm is named where the rows have several"
    assert any("--norm" in note for note in comparison["notes"]) == (not norm)
    assert (norms[0] == norms[1]) == bool(norm)


@pytest.mark.long
def test_a_comparison_that_is_stopped_ends_its_runs_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = (
        "--hidden", 8, 8, "--sub-gcns", 2, "--epochs", 400, "--local-steps", 1,
        "--evaluate-every", 100,
    )  # fmt: skip
    process = start(command("compare", *options, "--out", out), tmp_path)
    wait_until(lambda: list(out.glob("runs/*.checkpoints/round-*/state.json")), process)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate(timeout=120)
    assert message.endswith("gistgnn: interrupted\n")
    assert "Traceback" not in message
    assert process.returncode == 143
    assert not psutil.wait_procs(workers, timeout=30)[1]
    checkpoints = out.glob("runs/*.checkpoints/round-*/state.json")
    rounds = [json.loads(path.read_text())["state"]["rounds"] for path in checkpoints]
    assert max(rounds) < 400
    (begun,) = (path.stem for path in out.glob("runs/*.checkpoints"))
    assert run("compare", *options, "--out", out) == 0
    assert begun in {path.stem for path in out.glob("runs/*.json")}
    written = json.loads((out / "comparison.json").read_text())
    assert [curve["epoch"][-1] for curve in written["curves"]] == [400, 400]


TRAIN = (
    "train", "--hidden", 8, "--epochs", 8, "--local-steps", 2, "--json", "--device", "cpu",
    "--norm", "none",
)  # fmt: skip


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
        assert run(*TRAIN, *options, "--out", folder / name) == 0
    return folder


def test_seeds_share_a_row_and_settings_that_differ_are_named(runs: Path) -> None:
    rows, record = compare_runs([runs / name for name in ("first", "again", "faster", "ordinary")])
    assert [len(row.score) for row in rows] == [1, 2, 1]
    assert rows[0].sub_gcns == 1, "ordinary training is the baseline"
    assert [row.detail for row in rows] == ["lr 0.01", "lr 0.01", "lr 0.1"]
    assert rows[2].label == "GIST, lr 0.1, m = 2"
    assert record["title"] == "4 runs on digits"
    assert [curve["label"] for curve in record["curves"]] == [row.label for row in rows]
    same = runs / ".." / runs.name / "first"
    rows, record = compare_runs([runs / "first", runs / "faster", same])
    assert [len(row.score) for row in rows] == [1, 1], "a run that is named twice counts once"
    assert record["title"] == "2 runs on digits"


def test_comparing_finished_runs_trains_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(runs.rglob("*"))
    page = tmp_path / "page"
    assert run("compare", runs / "first", runs / "faster", "--out", page) == 0
    assert "GIST, lr 0.1" in capsys.readouterr().out
    assert sorted(path.name for path in page.iterdir()) == [
        "comparison.json",
        "comparison.md",
        "report.html",
    ]
    assert "lr 0.1" in (page / "report.html").read_text()
    assert sorted(runs.rglob("*")) == before
    compare = ("compare", "--out", page)
    refused(capsys, "holds no result.json", *compare, runs / "first", tmp_path)
    refused(capsys, "two different runs or more", *compare, runs / "first", runs / "again")
    record: dict[str, Any] = json.loads((runs / "faster/result.json").read_text())
    rewrite(tmp_path / "cora", {**record, "graph": {**record["graph"], "name": "cora"}})
    refused(capsys, "is of the graph digits, ", *compare, runs / "first", tmp_path / "cora")
    record = json.loads((runs / "faster/result.json").read_text())
    rewrite(tmp_path / "f1", {**record, "metric": {**record["metric"], "name": "f1_macro"}})
    refused(capsys, "is accuracy, that of ", *compare, runs / "first", tmp_path / "f1")
    record["evaluation"]["exact"] = False
    record["provenance"]["machine"] = "another CPU"
    rewrite(tmp_path / "other", {**record, "interrupted": True})
    _, compared = compare_runs([runs / "first", tmp_path / "other"])
    notes = " ".join(compared["notes"])
    assert "times cannot be compared" in notes
    assert "other was interrupted" in notes
    assert "other was evaluated in parts: its scores are estimates" in notes
    assert "another CPU" in compared["machine"]


@pytest.mark.parametrize(
    "entry",
    [
        "train_seconds",
        "graph name",
        "test accuracy",
        "test",
        "metric",
        "history",
        "files",
        "coverage never_trained",
    ],
)
def test_a_value_of_another_type_behind_a_checksum_that_fits_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str
) -> None:
    record: dict[str, Any] = json.loads((runs / "faster/result.json").read_text())
    *outer, last = entry.split()
    part = record
    for name in outer:
        part = part[name]
    part[last] = [None]
    rewrite(tmp_path / "odd", record)
    assert run("list", runs, tmp_path) == 0
    assert capsys.readouterr().out.count("unreadable") == 1
    message = f"{tmp_path / 'odd' / 'result.json'} cannot be read"
    for words in (("evaluate",), ("compare", "--out", tmp_path / "page", runs / "first")):
        refused(capsys, message, *words, tmp_path / "odd")


def test_a_file_of_version_1_is_read_and_one_of_another_form_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record: dict[str, Any] = json.loads((runs / "faster/result.json").read_text())
    shutil.copytree(runs / "faster", tmp_path / "older")
    rewrite(tmp_path / "older", {**record, "version": 1, "test": None})
    again = load_run(tmp_path / "older")
    assert (again.test, again.validation) == ({}, record["validation"])
    odd = tmp_path / "odd"
    for changes, message in (
        ({"version": 3}, "it has the form 3, and this gistgnn reads 2"),
        ({"version": 1, "coverage": {"rounds": 3, "parameters": 5}}, "`never_trained`"),
        ({"version": 1, "local_steps": [2, 3]}, "`$.local_steps`"),
    ):
        rewrite(odd, {**record, **changes})
        refused(capsys, f"{odd / 'result.json'} cannot be read", "evaluate", odd)
        refused(capsys, message, "evaluate", odd)
        refused(capsys, "train the run again", "evaluate", odd)


def test_runs_are_listed_once_with_their_state(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("list", runs) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(header.split()) == "run graph model trained by test training date state"
    assert sorted(line.split()[0] for line in lines) == sorted(str(path) for path in runs.iterdir())
    assert "digits GCN 8 GIST, m = 2" in " ".join(lines[0].split())
    assert "one device" in "".join(lines)
    assert run("list", runs, "--json") == 0
    assert {row["state"] for row in json.loads(capsys.readouterr().out)} == {"finished"}
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/result.json").write_text("{")
    assert run("list", runs / "first", runs / "faster", tmp_path, runs) == 0  # each run once
    out = capsys.readouterr().out
    assert "unreadable" in out
    assert len(out.splitlines()) == len(lines) + 2
