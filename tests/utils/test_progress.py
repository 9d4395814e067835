"""What commands print beside their results.

Progress in a log and on a terminal, tasks, and tables.
"""

import io
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from gistgnn import GIST
from gistgnn.utils import console
from gistgnn.utils.console import TaskProgress
from gistgnn.utils.formats import rough_duration
from tests.helpers.fitting import GRAPH, gcn

TIMES = {
    0.2: "1 s",
    89: "89 s",
    90: "2 min",
    89 * 60: "89 min",
    5400: "1 h 30 min",
    1.4e5: "1 day 14 h",
    2e5: "2 days 7 h",
}


def test_durations_are_rough() -> None:
    assert [rough_duration(seconds) for seconds in TIMES] == list(TIMES.values())


def test_a_log_gets_a_line_for_every_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    GIST(gcn(), (8, 7), 2, width_scaling="none").fit(
        GRAPH, epochs=24, local_steps=2, evaluate_every=2
    )
    # A command that ran in this process before lets notes be shown as well.
    shown = capsys.readouterr().err.splitlines()
    first, *lines = (line for line in shown if not line.startswith("gistgnn: note: "))
    assert first == "training: 0 of 6 rounds done"
    assert [line.split(" · ")[0] for line in lines] == ["round 2/6", "round 4/6", "round 6/6"]
    pattern = r"epoch \S+ · loss \S+ · validation 0\.\d{4} · best 0\.\d{4} · .* of training"
    assert all(re.search(pattern, line) for line in lines)
    assert ["left" in line for line in lines] == [True, True, False]
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=24, local_steps=2, progress=False)
    silent = capsys.readouterr().err.splitlines()
    assert [line for line in silent if not line.startswith("gistgnn: note: ")] == []


def screen_of(width: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Let a terminal of so many columns stand for standard error; return what reads its lines."""
    screen = io.StringIO()
    monkeypatch.setattr(
        console, "terminal", lambda: Console(file=screen, force_terminal=True, width=width)
    )
    return lambda: re.sub(r"\x1b\[[\d;?]*\w", "", screen.getvalue()).splitlines()


@pytest.mark.parametrize("width", [160, 80, 40])
def test_a_terminal_shows_rounds_scores_and_time(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = screen_of(width, monkeypatch)
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=24, local_steps=2, evaluate_every=2)
    shown = [line for line in lines() if "round" in line]
    assert re.search(r"round 6/6", shown[-1])
    assert re.search(r"best 0\.\d{4}", shown[-1])
    assert all("━" in line and "…" not in line and len(line) <= width for line in shown)
    if width == 160:
        assert re.search(r"round 6/6 · loss \S+ · validation 0\.\d{4} · best 0\.\d{4}", shown[-1])


def test_a_bar_of_80_columns_has_all_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = screen_of(80, monkeypatch)
    meter = console.Meter("training")
    meter.begin(0, 100)
    meter.update(99, 100, "round 9,999/10,000", "loss 0.0123", "validation 0.9876", "best 0.9876")
    meter.close()
    *_, last = lines()
    assert re.fullmatch(
        r"━+╸?━* round 9,999/10,000 · validation 0.9876 · best 0.9876 · 1 s left", last
    )
    assert len(last) == 80


def test_a_log_speaks_while_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LONGEST_SILENCE", 0.05)
    meter = console.Meter("training")
    meter.begin(0, 4, "round 0/4")
    meter.update(1, 4, "round 1/4", "loss 0.5")
    with console.spinner("cutting the graph", shown=True):
        time.sleep(0.4)
    meter.close()
    threads = threading.active_count()
    lines = capsys.readouterr().err.splitlines()
    of_run = [line for line in lines if line.startswith("round 1/4 · loss 0.5 · 1 s so far · ")]
    of_task = [line for line in lines if line == "gistgnn: cutting the graph, 1 s so far"]
    assert len(of_run) >= 2
    assert len(of_task) >= 2
    assert {*lines} - {*of_run, *of_task} <= {"round 0/4 · 1 s so far"}
    time.sleep(0.2)
    assert capsys.readouterr().err == ""
    assert threads == threading.active_count()


def test_a_quiet_program_shows_errors_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console.show_log(logging.ERROR)
    try:
        GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=24, local_steps=2)
        with TaskProgress("comparing", 3) as tasks, console.spinner("a", shown=True, logged=True):
            tasks.advance()
        logging.getLogger("gistgnn.somewhere").warning("a note")
        assert capsys.readouterr().err == ""
    finally:
        console.show_log()


def test_tasks_are_counted_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with TaskProgress("comparing", 3, done=1) as tasks:
        tasks.advance()
        tasks.advance()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[0] for line in lines] == ["comparing: 2 of 3", "comparing: 3 of 3"]


def test_a_log_has_the_outermost_of_the_tasks_that_are_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        console.spinner("thinking", shown=True),
        console.spinner("inside", shown=True, logged=True),
    ):
        pass
    with (
        console.spinner("outside", shown=True, logged=True),
        console.spinner("within", shown=True, logged=True),
    ):
        pass
    assert capsys.readouterr().err == "gistgnn: inside\ngistgnn: outside\n"


def test_a_table_never_breaks_a_long_path(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = str(Path("runs", *["a-very-long-name"] * 12))
    console.print_table(
        f"of {path}", ("run", "test"), [(path, "0.9"), ("short", "0.95")], left=["run"]
    )
    title, _, first, second = capsys.readouterr().out.splitlines()
    assert title == f"of {path}"
    assert first.split() == [path, "0.9"]
    assert len(first) == len(second)  # the numbers end in one column
