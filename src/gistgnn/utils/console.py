"""What commands print beside their results: log messages, a spinner, progress, and tables."""

import contextlib
import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task
from rich.table import Table
from rich.text import Text

from gistgnn.errors import printable
from gistgnn.utils.formats import duration, rough_duration

LONGEST_SILENCE = 30.0  # seconds: a log that says nothing for longer looks like one that hangs
_WIDEST = 1000  # columns: wider than any table
_NARROWEST_BAR = 8  # columns

_showing = False  # one spinner at a time: the outermost
_beating = False  # whether one of them writes into a log from time to time
_is_quiet = False  # errors are shown, and nothing else


def terminal() -> Console:
    """Return standard error as a console that leaves long lines whole.

    The terminal breaks them, so that a path can be copied.
    """
    return Console(stderr=True, soft_wrap=True)


def show_log(level: int = logging.INFO, *, shown: bool = True) -> None:
    """Print gistgnn's log messages on standard error, or hide them.

    Args:
        level: of `logging`, from which on messages are printed: INFO has notes, DEBUG also what is
            chosen and why. With ERROR there is no spinner and no progress either.
        shown: whether this process prints at all.
    """
    global _is_quiet
    _is_quiet = level >= logging.ERROR
    logger = logging.getLogger("gistgnn")
    logger.handlers.clear()
    logger.addHandler(_NoteHandler() if shown else logging.NullHandler())
    logger.setLevel(level)
    logger.propagate = False


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        kind = "chosen" if record.levelno < logging.INFO else "note"
        text = f"gistgnn: {kind}: {printable(record.getMessage())}"
        print(text, file=sys.stderr)  # read sys.stderr now: progress bars replace it


class _Heartbeat:
    """Calls a function after every `LONGEST_SILENCE` seconds without a `beat`, until `close`.

    It has a thread, as nothing else runs during a long round, an evaluation or a cut by METIS.
    """

    def __init__(self, speak: Callable[[], None]) -> None:
        self._speak = speak
        self._over = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="gistgnn-log", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Note that the log has got a line."""
        self._last = time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(max(self._last + LONGEST_SILENCE - time.monotonic(), 0.01)):
            if time.monotonic() >= self._last + LONGEST_SILENCE:
                self.beat()
                self._speak()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def _write_line(text: str) -> None:
    """Write a line of a log in one piece, as other threads may write as well."""
    with contextlib.suppress(OSError):  # training goes on without its log
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def spinner(task: str, *, shown: bool, logged: bool = False) -> Iterator[None]:
    """Say on standard error what the block does, if `shown`; within another spinner, nothing.

    A terminal shows a spinner. A log gets a line at once if it is `logged`, and one after every
    `LONGEST_SILENCE` seconds.
    """
    global _showing, _beating
    if not shown or _showing or _is_quiet:
        yield
        return
    console = terminal()
    task = printable(task)
    begun = time.monotonic()

    def speak() -> None:
        _write_line(f"gistgnn: {task}, {rough_duration(time.monotonic() - begun)} so far")

    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            stack.enter_context(console.status(Text(task)))
        elif logged:
            _write_line(f"gistgnn: {task}")
        is_outermost = not _beating
        if is_outermost and not console.is_terminal:
            stack.enter_context(contextlib.closing(_Heartbeat(speak)))
        _beating = True
        _showing = logged or console.is_terminal
        try:
            yield
        finally:
            _showing = False
            _beating = not is_outermost


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str] = ()
) -> None:
    """Print a table with whole cells, under a title if it has one.

    Columns in `left` are aligned left.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if title:
        print(printable(title))
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Print it ourselves: rich would end the process where standard output is closed.
    text = io.StringIO()
    colours = sys.stdout.isatty()
    Console(file=text, force_terminal=colours, width=_WIDEST, highlight=False, markup=False).print(
        table
    )
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()), flush=True)


_APART = " · "


class _BarAndWords(BarColumn):
    """A bar and beside it the words of a meter, as many as fit on the terminal."""

    def __init__(self, meter: "Meter", console: Console) -> None:
        super().__init__()
        self._meter = meter
        self._console = console

    def render(self, task: Task) -> Any:
        parts = [*self._meter.parts, *self._meter.time_left()]
        room = self._console.width - _NARROWEST_BAR - 1
        while len(parts) > 2 and len(_APART.join(parts)) > room:
            del parts[1]
        words = _APART.join(parts)
        self.bar_width = max(self._console.width - len(words) - 1, _NARROWEST_BAR)
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_row(super().render(task), Text(words, no_wrap=True))
        return row


class Meter:
    """Shows how much of some work is done, and how long the rest will take.

    The rest is taken to go on as fast as before. A terminal has a bar. A log has the lines of
    `log`, and one after every `LONGEST_SILENCE` seconds without any.

    Args:
        label: what is done, before there is more to say.

    Attributes:
        has_bar: whether there is a bar.
        parts: what is shown; on a narrow terminal the second one is left out first, then the third.
    """

    def __init__(self, label: str) -> None:
        console = terminal()
        self.has_bar = console.is_terminal and not _is_quiet
        self.parts: Sequence[str] = [label]
        self._bar = Progress(_BarAndWords(self, console), console=console, disable=not self.has_bar)
        self._task = self._bar.add_task(label, total=None)
        self._heartbeat: _Heartbeat | None = None
        self._begun = self._updated = time.monotonic()
        self._first = self._done = self._total = 0.0

    def begin(self, done: float, total: float, *parts: str) -> None:
        """Begin to show the work, a part of which was done before."""
        self._bar.start()
        self.update(done, total, *parts)
        self._begun = self._updated
        self._first = done
        if not (self.has_bar or _is_quiet):
            self._heartbeat = _Heartbeat(self._say_where)

    def update(self, done: float, total: float, *parts: str) -> None:
        self._done = done
        self._total = total
        self._updated = time.monotonic()
        self.parts = parts or self.parts
        self._bar.update(self._task, completed=done, total=total)

    def time_left(self) -> list[str]:
        """Return the time that is left, in words.

        The list is empty where the time is not known, or none is left.
        """
        fresh = self._done - self._first
        remaining = self._total - self._done
        if fresh <= 0 or remaining <= 0:
            return []
        seconds = (self._updated - self._begun) / fresh * remaining - (
            time.monotonic() - self._updated
        )
        return [f"{rough_duration(seconds)} left"]

    def log(self, *parts: str) -> None:
        """Print a line where there is no bar, with the time that is left."""
        if self._heartbeat is not None:
            self._heartbeat.beat()
            _write_line(_APART.join([*parts, *self.time_left()]))

    def _say_where(self) -> None:
        elapsed = rough_duration(time.monotonic() - self._begun)
        _write_line(_APART.join([*self.parts, f"{elapsed} so far", *self.time_left()]))

    def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.close()
        self._bar.stop()


class TaskProgress:
    """Shows how many of `total` tasks, such as runs, are finished.

    `done` of them were finished before. A log gets a line for each.
    """

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self._label = label
        self._total = total
        self._done = done
        self._meter = Meter(label)

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._meter.begin(self._done, self._total, self._count)
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.close()

    @property
    def _count(self) -> str:
        return f"{self._label}: {self._done:,} of {self._total:,}"

    def advance(self) -> None:
        self._done += 1
        self._meter.update(self._done, self._total, self._count)
        self._meter.log(self._count, duration(time.monotonic() - self._begun))
