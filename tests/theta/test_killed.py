"""Real processes that are killed while they write Θ, and what becomes of their runs."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.commands import run_program

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")
def test_a_killed_run_ends_with_the_theta_of_an_unbroken_one(tmp_path: Path) -> None:
    """Twenty kills, spread over all that a run writes: journal, Θ, best Θ, moments, state."""
    done = run_program(ROOT, "from tests.theta.killed import main; main()", tmp_path, 1, 1200, 41, timeout=300)
    assert done.returncode == 0, done.stderr
    unbroken, *lines = (line.split() for line in done.stdout.splitlines())
    assert unbroken[1] == "0"
    killed = [line for line in lines if int(line[1]) == -signal.SIGKILL]
    assert len(killed) >= 20, done.stdout
    for line in lines:
        assert line[-2:] == ["0", unbroken[2]], line
