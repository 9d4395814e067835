"""How much of some work is done, on standard error: a bar on a terminal, lines in a log."""

import contextlib
import sys
import time
from typing import Self

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gistgnn.utils.console import Terminal
from gistgnn.utils.formats import duration, rough_duration

_APART = " · "


class Meter:
    """Shows how much of the work `label` is done, and how long the rest takes if it goes on as fast as so far."""

    def __init__(self, label: str) -> None:
        console = Terminal()
        self.has_bar = console.is_terminal
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TextColumn("{task.fields[text]}"))
        times = (TimeElapsedColumn(), TimeRemainingColumn(compact=True))
        self._bar = Progress(*columns, *times, console=console, disable=not self.has_bar)
        self._task = self._bar.add_task(label, total=None, text="")
        self._begun = time.monotonic()
        self._first = self._done = self._total = 0.0

    def begin(self, done: float, total: float) -> None:
        """Begin to show the work, a part of which was done before."""
        self._begun, self._first = time.monotonic(), done
        self._bar.start()
        self.update(done, total)

    def update(self, done: float, total: float, *parts: str) -> None:
        """Show how much is done, and more in words."""
        self._done, self._total = done, total
        self._bar.update(self._task, completed=done, total=total, text=_APART.join(parts))

    def log(self, *parts: str) -> None:
        """Print a line where there is no bar, with the time that is left."""
        fresh, rest, elapsed = self._done - self._first, self._total - self._done, time.monotonic() - self._begun
        left = [f"{rough_duration(elapsed / fresh * rest)} left"] if fresh > 0 and rest > 0 else []
        if not self.has_bar:
            with contextlib.suppress(OSError):  # training goes on without its log
                print(_APART.join([*parts, *left]), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


class TaskProgress:
    """How many of `total` tasks, such as runs, are finished, `done` of them before; a log gets a line for each."""

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self._label, self._total, self._done, self._meter = label, total, done, Meter(label)

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._meter.begin(self._done, self._total)
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.close()

    def advance(self) -> None:
        """Show that one more task is finished."""
        self._done += 1
        self.within(0.0)
        count = f"{self._done:,} of {self._total:,}"
        self._meter.log(f"{self._label}: {count}", duration(time.monotonic() - self._begun))

    def within(self, tasks: float) -> None:
        """Show how much of the unfinished tasks is done, in tasks."""
        self._meter.update(self._done + tasks, self._total, f"{self._done:,} of {self._total:,}")
