"""What is shown of a run's progress, in a terminal of any width and in a log."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gistgnn import GIST
from gistgnn.runners.registry import RunnerName
from gistgnn.utils import progress
from gistgnn.utils.formats import rough_duration
from gistgnn.utils.progress import InLog, State, TaskProgress, status
from tests.helpers.fitting import GRAPH, gcn

ENTRY = {"round": 12, "epoch": 20.0, "loss": 0.1234, "validation": 0.8734, "train_seconds": 3.0}
FULL = State(12, 240, 33, 80, "", ENTRY, 0.8812, lambda: 130.0)


@given(
    st.builds(
        State,
        rounds=st.integers(0, 10**6),
        of=st.integers(0, 10**6),
        step=st.integers(0, 10**6),
        steps=st.integers(0, 10**6),
        activity=st.sampled_from(["", "evaluating"]),
        entry=st.sampled_from([None, ENTRY]),
        best=st.none() | st.floats(0, 1),
        left=st.sampled_from([lambda: None, lambda: 1e7]),
        ended=st.booleans(),
    ),
    st.integers(1, 300),
)
def test_the_line_always_fits(state: State, width: int) -> None:
    assert len(status(state, width)) <= width


def test_narrow_terminals_keep_what_matters_most() -> None:
    wide, usual, narrow = (status(FULL, width) for width in (120, 80, 40))
    for part in ("round 13/240", "step 33/80", "loss 0.123", "validation 0.8734", "best 0.8812", "2 min left"):
        assert part in wide
    assert "validation 0.8734 · best 0.8812 · 2 min left" in usual
    assert "loss" not in usual
    assert narrow.endswith("round 13/240 · 2 min left")
    assert status(State(6, 12), 40).startswith("━" * 12 + "╌" * 12)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (90, "2 min"),
        (89 * 60, "89 min"),
        (5400, "1 h 30 min"),
        (1.4e5, "1 day 14 h"),
        (2e5, "2 days 7 h"),
    ],
)
def test_the_time_that_is_left(seconds: float, words: str) -> None:
    assert rough_duration(seconds) == words


def test_an_evaluation_belongs_to_the_round_before_it() -> None:
    assert "round 12/240 · evaluating" in status(State(12, 240, activity="evaluating"), 120)
    assert "round 13/240 · step 3/80" in status(State(12, 240, 3, 80), 120)


def test_a_log_gets_a_line_for_every_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=24, local_steps=2, evaluate_every=2)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "training: 0 of 6 rounds done, the next of 2 steps"
    assert [line.split(" · ")[0] for line in lines] == ["round 2/6", "round 4/6", "round 6/6"]
    assert all(re.search(r"loss \S+ · validation 0\.\d{4} · best 0\.\d{4} · .* of training", line) for line in lines)
    assert "left" not in lines[-1]


def test_nothing_is_shown_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=24, local_steps=2, progress=False)
    assert capsys.readouterr().err == ""


def test_a_log_is_not_silent_between_evaluations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    state, log = State(0, 3, steps=10), InLog()
    log.start(state)
    for state.step in range(1, 10):
        now[0] += 4.0
        log.changed(state)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["round 1/3 · step 2/10", "round 1/3 · step 5/10"]  # after 5 s, then after 10


@pytest.mark.parametrize(("runner", "steps"), [("auto", 2), ("in-turn", 4)])
def test_steps_are_shown_inside_a_round(monkeypatch: pytest.MonkeyPatch, runner: RunnerName, steps: int) -> None:
    seen: list[tuple[int, int, int]] = []
    monkeypatch.setattr(
        progress.InLog, "changed", lambda _, state: seen.append((state.rounds, state.step, state.steps))
    )
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=8, local_steps=2, evaluate_every=100, runner=runner)
    inside = range(1, steps + 1)
    assert [each[:2] for each in seen] == [*((0, k) for k in inside), (1, 0), *((1, k) for k in inside), (2, 0)]
    assert {each[2] for each in seen} == {steps}


def test_tasks_are_counted_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with TaskProgress("comparing", 3, done=1) as tasks:
        tasks.within(0.5)
        tasks.advance()
        tasks.advance()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[0] for line in lines] == ["comparing: 2 of 3", "comparing: 3 of 3"]
