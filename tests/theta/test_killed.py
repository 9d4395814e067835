"""Real processes that are killed while they write Θ, and what becomes of their runs."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.commands import run_program

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")
@pytest.mark.parametrize(("kind", "step"), [("disk", 23), ("phases", 31), ("checkpoints", 2)])
def test_a_run_that_is_killed_ends_like_an_unbroken_one(kind: str, step: int, tmp_path: Path) -> None:
    """At least twenty kills over all that a run writes: a round's files, Θ, best Θ, moments, state, checkpoints."""
    done = run_program(ROOT, "from tests.theta.killed import main; main()", tmp_path, 1, 1200, step, kind, timeout=300)
    assert done.returncode == 0, done.stderr
    unbroken, *lines = (line.split() for line in done.stdout.splitlines())
    assert unbroken[1] == "0"
    killed = [line for line in lines if int(line[1]) == -signal.SIGKILL]
    assert len(killed) >= 20, done.stdout
    for line in lines:
        assert line[-2:] == ["0", unbroken[2]], line
