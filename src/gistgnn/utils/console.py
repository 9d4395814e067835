"""What the terminal shows during a run: log messages, a spinner, a progress bar."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def show_log(*, shown: bool = True) -> None:
    """Print gistgnn's log messages from level INFO on as ``gistgnn: note: ...`` on standard error, or hide them."""
    logger = logging.getLogger("gistgnn")
    logger.handlers.clear()
    logger.addHandler(_NoteHandler() if shown else logging.NullHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"gistgnn: note: {record.getMessage()}", file=sys.stderr)  # read sys.stderr now: progress bars replace it


@contextlib.contextmanager
def spinner(task: str, *, shown: bool) -> Iterator[None]:
    """Show a spinner with the elapsed time while the block runs, if ``shown`` and standard error is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn(task), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        bar.add_task(task, total=None)
        yield


class RoundBar:
    """A progress bar over the rounds of a run, on standard error, with the latest loss and scores."""

    def __init__(self, rounds: int, *, shown: bool) -> None:
        scores, left = TextColumn("{task.fields[scores]}"), TimeRemainingColumn(compact=True)
        columns = (BarColumn(bar_width=10), MofNCompleteColumn(), scores, left)
        self._bar = Progress(*columns, console=Console(stderr=True), disable=not shown)
        self._task = self._bar.add_task("rounds", total=rounds, scores="")

    def __enter__(self) -> "RoundBar":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()  # the bar stays on the screen

    def advance(self, rounds: int, of: int) -> None:
        """Show the number of finished rounds, of all that are planned."""
        self._bar.update(self._task, completed=rounds, total=of)

    def update(self, entry: dict[str, Any], best: float | None) -> None:
        """Show a history entry and the best validation score."""
        best = entry["validation"] if best is None else best
        scores = f"loss {entry['loss']:.3g} validation {entry['validation']:.4f} best {best:.4f}"
        self._bar.update(self._task, completed=entry["round"], scores=scores)
