"""What commands print beside their results: progress in a log and on a terminal, tasks, and
tables.
"""

import io
import re
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
}
TIMES |= {2e5: "2 days 7 h"}


def test_the_time_that_is_left() -> None:
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
    assert "round" not in capsys.readouterr().err


def test_a_terminal_shows_rounds_scores_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        console, "terminal", lambda: Console(file=screen, force_terminal=True, width=160)
    )
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=24, local_steps=2, evaluate_every=2)
    *_, last = (line for line in screen.getvalue().splitlines() if "training" in line)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", last)
    assert re.search(r"round 6/6 · loss \S+ · validation 0\.\d{4} · best 0\.\d{4}", shown)


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
