"""What a comparison says of its runs, and the command."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gistgnn.compare import tables
from gistgnn.compare.comparison import Comparison, curve_of, rows_of
from gistgnn.errors import InputError
from gistgnn.runs.config import RunConfig
from tests.cli.in_process import refused, run
from tests.helpers.commands import command, start


def record(m: int, scores: list[float], seconds: list[float], method: str = "gist") -> dict[str, Any]:
    """A run whose test scores after each round, and their times, are these."""
    history = [
        {"round": k + 1, "epoch": k + 1, "step": 5 * k + 5, "loss": 1.0, "test": score, "train_seconds": time}
        for k, (score, time) in enumerate(zip(scores, seconds, strict=True))
    ]
    return {
        "config": {"method": method, "sub_gcns": m, "training": {}},
        "graph": {"multi_label": False},
        "test": {"accuracy": scores[-1]},
        "train_seconds": seconds[-1],
        "rounds": len(scores),
        "steps": 5 * m * len(scores),
        "traffic": {"workers": m, "bytes_per_round": 100.0 * (m - 1)},
        "inference_seconds": 0.5 * m,
        "peak_memory_bytes": 2**20,
        "history": history,
    }


BASE = [record(1, [0.5, 0.8, 0.9], [10, 20, 30]), record(1, [0.5, 0.88, 0.9], [12, 24, 36])]
CLOSE = [record(4, [0.6, 0.9], [3, 6], "local-sgd"), record(4, [0.6, 0.9], [4, 8], "local-sgd")]
WORSE = [record(2, [0.7, 0.896], [4, 10]), record(2, [0.7, 0.85], [5, 12])]


def test_rows_sum_up_their_seeds() -> None:
    base, close, worse = rows_of([BASE, CLOSE, WORSE], below=0.5)
    assert base.score == (90.0, 90.0)
    assert base.speedup == 1.0
    assert base.seconds_to == (30, 36)
    assert close.label == "local SGD, m = 4"
    assert close.seconds == (6, 8)
    assert close.speedup == pytest.approx(33 / 7)
    assert close.seconds_to == (6, 8)
    assert close.speedup_to == pytest.approx(33 / 7)
    assert close.bytes == 600
    assert worse.seconds_to == (10, None)
    assert worse.speedup_to is None
    assert rows_of([BASE, CLOSE], below=10)[1].seconds_to == (6, 8)
    assert rows_of([BASE, CLOSE], below=30.0)[1].seconds_to == (3, 4)


def test_a_speed_up_that_costs_more_than_a_point_stands_in_parentheses() -> None:
    base, close, worse = rows_of([BASE, CLOSE, WORSE])
    assert tables.speedup(close, base) == "4.71x"
    assert worse.mean == pytest.approx(87.3)
    assert tables.speedup(worse, base) == "(3.00x)"
    columns, cells = tables.comparison_table([base, close, worse], 0.5)
    assert all(len(row) == len(columns) for row in cells)
    assert cells[2][5] == "10\N{NO-BREAK SPACE}s (1/2)" or cells[2][5].endswith("(1/2)")


def test_a_run_that_diverged_at_once_counts_as_nothing() -> None:
    lost = {**record(2, [0.1], [1.0]), "test": None, "history": [], "inference_seconds": None}
    lost |= {"train_seconds": 0.0, "rounds": 0, "steps": 0, "diverged": "in round 1"}
    base, row = rows_of([BASE[:1], [lost]])
    assert row.score == (0.0,)
    assert row.seconds_to == (None,)
    assert row.speedup is None
    assert row.inference is None
    assert tables.speedup(row, base) == "–"
    assert tables.comparison_table([base, row], 0.5)[1][1][7] == "–"
    assert rows_of([[lost], BASE[:1]])[1].speedup is None


def test_bytes_follow_from_rounds_or_steps() -> None:
    per_step = {**record(2, [0.1, 0.2], [1, 2], "data-parallel"), "traffic": {"workers": 2, "bytes_per_step": 7.0}}
    assert rows_of([BASE[:1], [per_step]])[1].bytes == 7 * 10
    assert curve_of(per_step)["bytes"] == [35, 70]


def test_curves_are_the_history() -> None:
    curve = curve_of(CLOSE[0])
    assert curve["score"] == [60.0, 90.0]
    assert curve["bytes"] == [300.0, 600.0]
    assert curve["seconds"] == [3, 6]


@pytest.mark.parametrize(
    ("methods", "sub_gcns", "below", "message"),
    [
        ((), (2,), 0.5, "nothing to compare"),
        (("gist",), (1,), 0.5, "nothing to compare"),
        (("gist",), (4, 0), 0.5, "sub_gcns is 0, expected an integer >= 1"),
        (("best",), (2,), 0.5, "method is 'best'"),
        (("gist",), (2,), -1.0, "below is -1, expected points from 0 to 100"),
    ],
)
def test_what_cannot_be_compared(
    methods: tuple[str, ...], sub_gcns: tuple[int, ...], below: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Comparison(RunConfig("digits"), methods, sub_gcns, 1, below)


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
        (("--methods", "sgd"), "invalid choice: 'sgd'"),
        (("--sub-gcns", 1), "nothing to compare"),
        (("--sub-gcns", 1000), "sub_gcns is 1000, more than the 256 features of d_1"),
        (("--seeds", 0), "'0' is not an integer >= 1"),
        (("--below", -3), "'-3' is not a number of points from 0 to 100"),
        (("--lr", -1), "lr is -1"),
        (("--dataset", "absent"), "'absent' is neither a data set nor a file"),
        (("--hidden", 2, 2, "--sub-gcns", 2, "--memory", 0.1), "2 runs that take turns need"),
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
    options = ("--hidden", 8, 8, "--sub-gcns", 2, "--epochs", 500, "--local-steps", 1, "--evaluate-every", 100)
    process = start(command("compare", *options, "--out", out), tmp_path)
    deadline = time.monotonic() + 120
    while len({path.parents[1] for path in out.glob("runs/*.checkpoints/round-*/state.json")}) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].endswith("gistgnn: interrupted\n")
    assert process.returncode == 130
    assert not psutil.wait_procs(workers, timeout=30)[1]
    states = [json.loads(path.read_text())["state"] for path in out.glob("runs/*.checkpoints/round-*/state.json")]
    assert max(state["rounds"] for state in states) < 500
    begun = {path.stem for path in out.glob("runs/*.checkpoints")}
    assert run("compare", *options, "--out", out) == 0
    assert {path.stem for path in out.glob("runs/*.json")} == begun
    written = json.loads((out / "comparison.json").read_text())
    assert [curve["epoch"][-1] for curve in written["curves"]] == [500, 500]
