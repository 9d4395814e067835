"""A case of the attack, and what must not happen in it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.attack.process import Forked, Outcome, gistgnn

ENDS = (0, 2, 130, 143)  # the exit statuses that a command may have
# the last is PyG's
_NOTES = ("gistgnn: ", "training: ", "round ", "partitioning ", "converting ", "Downloading ")


@dataclass(frozen=True)
class Workspace:
    """Where cases find valid files, and make their own."""

    valid: Path  # the folder of valid graphs and finished runs (see `benchmarks.attack.valid`)
    folder: Path  # an empty folder for the case
    limit: float  # seconds that a case may take
    # the command is run by a new interpreter, which takes seconds to import torch
    fresh: bool = False


@dataclass(frozen=True)
class Report:
    """A case that was run."""

    title: str  # what was tried
    wrong: str  # what went wrong; "": nothing
    status: int
    seconds: float


Judge = Callable[[Outcome], str]
"""Says what is wrong with an outcome that looks right; "": nothing."""

Kind = Callable[[Random, Workspace], Report]
"""Makes a case from random numbers, runs it, and judges it."""


def run(
    workspace: Workspace, title: str, work: Callable[[], int], judge: Judge | None = None
) -> Report:
    """Run a function in a process of its own; ``judge`` says what is wrong where nothing else is,
    or "".
    """
    outcome = Forked(work, workspace.folder).outcome(workspace.limit)
    wrong = fault(outcome) or (judge(outcome) if judge else "")
    return Report(title, wrong, outcome.status, outcome.seconds)


def run_command(
    workspace: Workspace, words: list[str], judge: Judge | None = None, note: str = ""
) -> Report:
    """Run the command line, and judge it."""
    return run(
        workspace,
        f"gistgnn {shown(words)}{note and f'  # {note}'}",
        gistgnn(words, fresh=workspace.fresh),
        judge,
    )


def fault(outcome: Outcome) -> str:
    """Return what is wrong with a command's end, whatever it was asked for; "": nothing."""
    if outcome.late:
        return f"hangs: still running after {outcome.seconds:.0f} s"
    lines = outcome.err.strip().splitlines()
    if "Traceback (most recent call last)" in outcome.err:
        where = [line.strip() for line in lines if line.lstrip().startswith("File ")][-1:]
        return f"traceback: {lines[-1][:200]} {' '.join(where)}"
    if outcome.status not in ENDS:
        return f"exit status {outcome.status}: {outcome.err.strip()[-200:]!r}"
    if bad := next(
        (c for c in outcome.err + outcome.out if not (c.isprintable() or c in "\n\t\xa0")), ""
    ):
        return f"prints the character {bad!r}"
    if outcome.status != 2:
        return ""
    errors = [line for line in lines if ": error: " in line]
    if len(errors) != 1 or not errors[0].startswith("gistgnn"):
        return f"refuses with {len(errors)} lines: {outcome.err[-200:]!r}"
    if other_lines := [
        line for line in lines if line not in errors and line and not line.startswith(_NOTES)
    ]:
        return f"refuses with more lines: {other_lines[0][:200]!r}"
    if len(errors[0]) > 2000:
        return f"refuses with a line of {len(errors[0]):,} characters"
    return f"refuses, and prints {outcome.out[:100]!r}" if outcome.out.strip() else ""


def shown(words: list[str]) -> str:
    """Return a command on one line, with long words cut."""
    texts = [word if re.fullmatch(r"[!-~]+", word) else repr(word) for word in words]
    return " ".join(text if len(text) <= 100 else f"{text[:100]}...({len(text)})" for text in texts)
