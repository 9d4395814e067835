"""What commands print beside their results: log messages, a spinner, progress; and tables that keep
paths whole.
"""

import contextlib
import io
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from gistgnn.errors import printable
from gistgnn.utils.formats import duration, rough_duration

_WIDEST = 1000  # columns: wider than any table

_showing = False  # one spinner at a time: the outermost


def terminal() -> Console:
    """Standard error, with long lines left whole: the terminal breaks them, so that a path can be
    copied.
    """
    return Console(stderr=True, soft_wrap=True)


def show_log(*, shown: bool = True) -> None:
    """Print gistgnn's log messages from level INFO on as ``gistgnn: note: ...`` on standard error,
    or hide them.
    """
    logger = logging.getLogger("gistgnn")
    logger.handlers.clear()
    logger.addHandler(_NoteHandler() if shown else logging.NullHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = f"gistgnn: note: {printable(record.getMessage())}"
        print(text, file=sys.stderr)  # read sys.stderr now: progress bars replace it


@contextlib.contextmanager
def spinner(task: str, *, shown: bool, logged: bool = False) -> Iterator[None]:
    """Say on standard error what the block does, if `shown`; within another spinner, nothing."""
    # A terminal shows a spinner. Elsewhere a line is printed if `logged`.
    global _showing
    console = terminal()
    task = printable(task)
    if not shown or _showing or not (logged or console.is_terminal):
        yield
        return
    _showing = True
    try:
        with console.status(Text(task)) if console.is_terminal else contextlib.nullcontext():
            if not console.is_terminal:
                print(f"gistgnn: {task}", file=sys.stderr, flush=True)
            yield
    finally:
        _showing = False


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str] = ()
) -> None:
    """Print a table, under a title if it has one, with whole cells. Columns in `left` are aligned
    left.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if title:
        print(printable(title))
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # rich would end the process where standard output is closed
    text = io.StringIO()
    colours = sys.stdout.isatty()
    Console(file=text, force_terminal=colours, width=_WIDEST, highlight=False, markup=False).print(
        table
    )
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()), flush=True)


_APART = " · "


class Meter:
    """Shows how much of the work `label` is done, and how long the rest takes if it goes on as fast
    as so far.
    """

    def __init__(self, label: str) -> None:
        console = terminal()
        self.has_bar = console.is_terminal
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("{task.fields[text]}"),
        )
        times = (TimeElapsedColumn(), TimeRemainingColumn(compact=True))
        self._bar = Progress(*columns, *times, console=console, disable=not self.has_bar)
        self._task = self._bar.add_task(label, total=None, text="")
        self._begun = time.monotonic()
        self._first = self._done = self._total = 0.0

    def begin(self, done: float, total: float) -> None:
        """Begin to show the work, a part of which was done before."""
        self._bar.start()
        self.update(done, total)
        self._begun = time.monotonic()
        self._first = done

    def update(self, done: float, total: float, *parts: str) -> None:
        self._done = done
        self._total = total
        self._bar.update(self._task, completed=done, total=total, text=_APART.join(parts))

    def log(self, *parts: str) -> None:
        """Print a line where there is no bar, with the time that is left."""
        fresh = self._done - self._first
        rest = self._total - self._done
        elapsed = time.monotonic() - self._begun
        left = [f"{rough_duration(elapsed / fresh * rest)} left"] if fresh > 0 and rest > 0 else []
        if not self.has_bar:
            with contextlib.suppress(OSError):  # training goes on without its log
                print(_APART.join([*parts, *left]), file=sys.stderr, flush=True)

    def close(self) -> None:
        self._bar.stop()


class TaskProgress:
    """How many of `total` tasks, such as runs, are finished, `done` of them before; a log gets a
    line for each.
    """

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self._label = label
        self._total = total
        self._done = done
        self._meter = Meter(label)

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._meter.begin(self._done, self._total)
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.close()

    def advance(self) -> None:
        self._done += 1
        count = f"{self._done:,} of {self._total:,}"
        self._meter.update(self._done, self._total, count)
        self._meter.log(f"{self._label}: {count}", duration(time.monotonic() - self._begun))
