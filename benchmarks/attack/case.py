"""A case of the attack, and what must not happen in it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.attack.process import Forked, Outcome, gistgnn

ENDS = (0, 2, 130, 143)  # the exit statuses that a command may have
# Lines on standard error that may come before an error begin with one of these; the last is PyG's.
_NOTES = ("gistgnn: ", "training: ", "round ", "partitioning ", "converting ", "Downloading ")


@dataclass(frozen=True)
class Workspace:
    """The folders of a case, and how it is run."""

    valid: Path  # the folder of valid graphs and finished runs (see `benchmarks.attack.valid`)
    folder: Path  # an empty folder for the case
    limit: float  # seconds that a case may take
    fresh: bool = False  # whether a new interpreter runs the command, which imports torch again


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
    """Run a function in a process of its own, and judge it.

    ``judge`` says what is wrong, or "", where the process ends as one may end.
    """
    outcome = Forked(work, workspace.folder).outcome(workspace.limit)
    wrong = fault(outcome) or (judge(outcome) if judge else "")
    return Report(title, wrong, outcome.status, outcome.seconds)


def run_command(
    workspace: Workspace, words: list[str], judge: Judge | None = None, note: str = ""
) -> Report:
    """Run the command line, and judge it."""
    title = f"gistgnn {shown(words)}"
    if note:
        title = f"{title}  # {note}"
    return run(workspace, title, gistgnn(words, fresh=workspace.fresh), judge)


def fault(outcome: Outcome) -> str:
    """Return what is wrong with a command's end, whatever it was asked for; "": nothing."""
    if outcome.late:
        return f"hangs: still running after {outcome.seconds:.0f} s"
    lines = outcome.err.strip().splitlines()
    if "Traceback (most recent call last)" in outcome.err:
        last_frame = [line.strip() for line in lines if line.lstrip().startswith("File ")][-1:]
        return f"traceback: {lines[-1][:200]} {' '.join(last_frame)}"
    if outcome.status not in ENDS:
        return f"exit status {outcome.status}: {outcome.err.strip()[-200:]!r}"
    for character in outcome.err + outcome.out:
        if not character.isprintable() and character not in "\n\t\xa0":
            return f"prints the character {character!r}"
    if outcome.status != 2:
        return ""
    errors = [line for line in lines if ": error: " in line]
    if len(errors) != 1 or not errors[0].startswith("gistgnn"):
        return f"refuses with {len(errors)} lines: {outcome.err[-200:]!r}"
    for line in lines:
        if line and line not in errors and not line.startswith(_NOTES):
            return f"refuses with more lines: {line[:200]!r}"
    if len(errors[0]) > 2000:
        return f"refuses with a line of {len(errors[0]):,} characters"
    return f"refuses, and prints {outcome.out[:100]!r}" if outcome.out.strip() else ""


def shown(words: list[str]) -> str:
    """Return a command on one line, with long words cut."""
    texts = [word if re.fullmatch(r"[!-~]+", word) else repr(word) for word in words]
    return " ".join(text if len(text) <= 100 else f"{text[:100]}...({len(text)})" for text in texts)
