"""A rank that is killed, and torchrun that starts all of them again."""

import re
from pathlib import Path

import psutil

from gistgnn.storage.checkpoints import Checkpoints
from tests.cli.in_process import wait_until
from tests.helpers.commands import run_command, run_ranks, start

from .test_command import CARRY, TRAIN, assert_one_model, words

LONGER = (*TRAIN, *CARRY, "--epochs", 400, "--checkpoint-every", 3, "--resume")


def test_a_rank_that_is_killed_costs_the_rounds_since_the_last_checkpoint(tmp_path: Path) -> None:
    process = start(words(2, *LONGER, "--store", "sharded", "--out", "cut", restarts=1), tmp_path)
    wait_until(Checkpoints(tmp_path / "cut/checkpoints").newest, process)
    ranks = [child for child in psutil.Process(process.pid).children() if "RANK" in child.environ()]
    assert len(ranks) == 2
    # The refusal of the test below goes by this variable.
    assert ranks[1].environ()["TORCHELASTIC_MAX_RESTARTS"] == "1"
    ranks[1].kill()
    log = process.communicate(timeout=120)[1]
    assert process.returncode == 0, log
    restart = re.search(
        r"torchrun has restarted the ranks: they go on after round (\d+); rounds lost: (\d+)", log
    )
    assert restart
    assert int(restart[1]) >= 3
    # One checkpoint may be three rounds old, and the next one counts a round after it is written.
    assert int(restart[2]) <= 2 * 3 + 1
    # The run did not begin anew.
    assert "round 1/20" not in log.split("Sending process")[-1]
    assert run_command(tmp_path, *LONGER, "--out", "whole").returncode == 0
    assert_one_model(tmp_path / "cut", tmp_path / "whole")


def test_restarts_need_to_know_which_run_goes_on(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path, 2, *TRAIN, "--out", "run", restarts=1)
    assert first.returncode != 0
    assert second.returncode != 0
    assert (
        "torchrun may restart the ranks (--max-restarts), but --resume is not given" in first.stderr
    )
    assert not (tmp_path / "run").exists()
