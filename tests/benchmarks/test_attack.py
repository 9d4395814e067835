"""The attack finds what it looks for, and a short one finds nothing."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.attack.case import Workspace, fault, run
from benchmarks.attack.options import COMMANDS, actions_of
from benchmarks.attack.process import Forked, Outcome
from benchmarks.attack.registry import KINDS
from gistgnn.cli.main import make_parser

ROOT = Path(__file__).parents[2]
REFUSED = "gistgnn: error: epochs is 0, expected an integer >= 1\n"


def outcome(status: int = 2, out: str = "", err: str = REFUSED, *, late: bool = False) -> Outcome:
    return Outcome(status, out, err, late, 1.0)


ENDS = [
    (outcome(), ""),
    (outcome(130, err="gistgnn: interrupted\n"), ""),
    (outcome(late=True), "hangs"),
    (
        outcome(err="Traceback (most recent call last):\n  File x\nKeyError: 1"),
        "traceback: KeyError: 1",
    ),
    (outcome(err=""), "refuses with 0 lines"),
    (outcome(err=f"UserWarning: x\n{REFUSED}"), "refuses with more lines"),
    (outcome(out="{"), "refuses, and prints"),
    (outcome(err="gistgnn: error: \x1b[31m\n"), "prints the character"),
]


def test_a_fault_is_what_is_wrong_with_an_end() -> None:
    for end, wrong in ENDS:
        assert wrong in fault(end)
        assert bool(fault(end)) == bool(wrong)


def _sleep() -> int:
    time.sleep(60)
    return 0


def test_a_case_that_hangs_or_fails_is_found(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path, 2.0)
    assert run(workspace, "sleeps", _sleep).wrong.startswith("hangs")
    assert "KeyError: 'lost'" in run(workspace, "fails", lambda: dict[str, int]()["lost"]).wrong
    assert run(workspace, "succeeds", lambda: 0).wrong == ""
    assert (
        run(workspace, "succeeds", lambda: 0, lambda outcome: "it should not").wrong
        == "it should not"
    )
    process = Forked(_sleep, tmp_path)
    process.send(15)
    assert process.outcome(10).status == -15


def test_every_option_of_every_command_is_tried() -> None:
    assert {"--epochs", "--lr", "--fanout"} <= {
        name for a in actions_of("train") for name in a.option_strings
    }
    commands = {command.split()[0] for command in COMMANDS}
    assert sum(share for share, _ in KINDS.values()) == 100
    assert commands == set(make_parser().commands.choices)


@pytest.mark.long
def test_a_short_attack_finds_nothing() -> None:
    words = [
        "--cases",
        "60",
        "--seconds",
        "8",
        "--seed",
        "1",
        "--kinds",
        "options",
        "files",
        "python",
    ]
    completed = subprocess.run(
        [sys.executable, "-m", "benchmarks.attack", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert " cases, 0 failures, seed 1" in completed.stdout
