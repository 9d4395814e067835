"""Real processes that are killed while they write Θ, and what becomes of their runs."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.commands import run_program

ROOT = Path(__file__).parents[2]


def killed_again_and_again(folder: Path, *words: object) -> None:
    """Check that a run with at least twenty kills ends like an unbroken one."""
    done = run_program(ROOT, "from tests.theta.killed import main; main()", folder, *words, timeout=300)
    assert done.returncode == 0, done.stderr
    unbroken, *lines = (line.split() for line in done.stdout.splitlines())
    assert unbroken[1] == "0"
    killed = [line for line in lines if int(line[1]) == -signal.SIGKILL]
    assert len(killed) >= 20, done.stdout
    for line in lines:
        assert line[-2:] == ["0", unbroken[2]], line


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")
def test_a_killed_run_ends_with_the_theta_of_an_unbroken_one(tmp_path: Path) -> None:
    """The kills are spread over all that a run writes: a round's files, Θ, best Θ, moments, state."""
    killed_again_and_again(tmp_path, 1, 1200, 23)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")
def test_a_run_in_phases_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Also where a phase begins, and the moments of the one before are removed."""
    killed_again_and_again(tmp_path, 1, 1200, 31, "phases")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")
def test_a_run_that_is_killed_while_it_writes_checkpoints_goes_on(tmp_path: Path) -> None:
    """With Θ in memory."""
    killed_again_and_again(tmp_path, 1, 1200, 2, "checkpoints")
