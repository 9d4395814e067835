"""What a comparison says of its runs, and the command."""

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from gistgnn.compare.comparison import rows_of, speedup, table_record
from gistgnn.report.pages import comparison_table
from tests.cli.in_process import refused, run
from tests.helpers.commands import command, start
from tests.report.records import scored

BASE = [scored(1, [0.5, 0.8, 0.9], [10, 20, 30]), scored(1, [0.5, 0.88, 0.9], [12, 24, 36])]
CLOSE = [scored(4, [0.6, 0.9], [3, 6], "local-sgd"), scored(4, [0.6, 0.9], [4, 8], "local-sgd")]
WORSE = [scored(2, [0.7, 0.896], [4, 10]), scored(2, [0.7, 0.85], [5, 12])]


def test_rows_sum_up_their_seeds() -> None:
    base, close, worse = rows_of([BASE, CLOSE, WORSE], below=0.5)
    assert (base.score, base.speedup, base.seconds_to) == ((90.0, 90.0), 1.0, (30, 36))
    assert close.label == "local SGD, m = 4"
    assert close.seconds == close.seconds_to == (6, 8)
    assert close.speedup == close.speedup_to == pytest.approx(33 / 7)
    assert close.bytes == 600
    assert worse.seconds_to == (10, None)
    assert worse.speedup_to is None
    assert worse.mean == pytest.approx(87.3)
    assert rows_of([BASE, CLOSE], below=10)[1].seconds_to == (6, 8)
    assert rows_of([BASE, CLOSE], below=30.0)[1].seconds_to == (3, 4)
    assert rows_of([BASE[:1], CLOSE])[1].seconds_to == (6, 8), "seeds need not correspond"


def test_a_speed_up_that_costs_more_than_a_point_stands_in_parentheses() -> None:
    groups = [BASE, CLOSE, WORSE]
    rows = rows_of(groups)
    assert [speedup(row, rows[0]) for row in rows] == ["1.00x", "4.71x", "(3.00x)"]
    columns, cells = comparison_table(table_record("", rows, groups, 0.5))
    assert all(len(row) == len(columns) for row in cells)
    assert [row[3] for row in cells] == ["1.0×", "4.7×", "(3.0×)"]
    assert cells[2][4] == "10.00 (1 of 2)"


def test_a_run_that_diverged_at_once_counts_as_nothing() -> None:
    lost = scored(2, [0.1], [1.0], test=None, diverged="in round 1")
    lost |= {"history": [], "inference_seconds": None, "train_seconds": 0.0, "rounds": 0, "steps": 0}
    groups = [BASE[:1], [lost]]
    base, row = rows_of(groups)
    assert (row.score, row.seconds_to, row.speedup, row.inference) == ((0.0,), (None,), None, None)
    assert speedup(row, base) == "–"
    assert comparison_table(table_record("", [base, row], groups, 0.5))[1][1][3:8] == ["–"] * 5
    assert rows_of([[lost], BASE[:1]])[1].speedup is None


def test_curves_are_the_history_and_bytes_follow_from_rounds_or_steps() -> None:
    per_step = scored(2, [0.1, 0.2], [1, 2], "data-parallel", traffic={"workers": 2, "bytes_per_step": 7.0})
    groups = [CLOSE, [per_step]]
    rows = rows_of(groups)
    assert [row.bytes for row in rows] == [600, 7 * 10]
    curve, other = table_record("", rows, groups, 0.5)["curves"]
    assert (curve["score"], curve["seconds"], curve["bytes"]) == ([60.0, 90.0], [3, 6], [300.0, 600.0])
    assert other["bytes"] == [35, 70]


OPTIONS = ("--hidden", 16, 16, "--epochs", 4, "--local-steps", 2, "--sampler", "clusters", "--clusters", 8)
OPTIONS = (*OPTIONS, "--clusters-per-batch", 2, "--sub-gcns", 2, "--methods", "gist", "local-sgd")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run("compare", *OPTIONS, "--seeds", 2, "--out", out) == 0
    assert "local SGD" in capsys.readouterr().out
    written = json.loads((out / "comparison.json").read_text())
    assert [(row["method"], row["sub_gcns"]) for row in written["rows"]] == [("gist", 1), ("gist", 2), ("local-sgd", 2)]
    assert all(len(row["score"]) == 2 for row in written["rows"])
    assert "<svg" in (out / "report.html").read_text()
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(kept) == 6
    assert run("compare", *OPTIONS, "--seeds", 2, "--out", out, "--json") == 0  # nothing is run again
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == written["rows"]
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--methods", "local-sgd"), "local-sgd gives each worker its own batches, but the sampler is full"),
        (("--sub-gcns", 1), "nothing to compare"),
        (("--sub-gcns", 1000), "sub_gcns is 1000, more than the 256 features of d_1"),
        (("--lr", -1), "lr is -1"),
        (("--dataset", "absent"), "'absent' is neither a data set nor a file"),
        (("--hidden", 2, 2, "--sub-gcns", 2, "--memory", 0.1), "gist with m = 1 needs"),
        (("--out", "/proc/nowhere"), "cannot write /proc/nowhere"),
    ],
)
def test_bad_options(
    options: tuple[object, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = () if "--out" in options else ("--out", tmp_path / "out")
    refused(capsys, message, "compare", *options, *given, leaves=tmp_path)


def test_it_resumes_after_ctrl_c(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--hidden", 8, 8, "--sub-gcns", 2, "--epochs", 1000, "--local-steps", 1, "--evaluate-every", 200)
    process = start(command("compare", *options, "--out", out), tmp_path)
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*.checkpoints/round-*/state.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].endswith("gistgnn: interrupted\n")
    assert process.returncode == 130
    assert not psutil.wait_procs(workers, timeout=30)[1]
    states = [json.loads(path.read_text())["state"] for path in out.glob("runs/*.checkpoints/round-*/state.json")]
    assert max(state["rounds"] for state in states) < 1000
    (begun,) = (path.stem for path in out.glob("runs/*.checkpoints"))
    assert run("compare", *options, "--out", out) == 0
    assert begun in {path.stem for path in out.glob("runs/*.json")}
    written = json.loads((out / "comparison.json").read_text())
    assert [curve["epoch"][-1] for curve in written["curves"]] == [1000, 1000]
