"""Shows how far a run, or a number of tasks, has come, on standard error: in a terminal, in a log, in a notebook."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from gistgnn.utils.console import Terminal
from gistgnn.utils.formats import duration, plural, rough_duration

_BAR = (6, 24)  # columns of the bar, at least and at most
_APART = " · "
_QUIET = 5.0  # seconds without a line in a log; they double with every line between evaluations
_LONGEST_QUIET = 600.0
_NOTEBOOK_EVERY = 0.25  # seconds


@dataclass
class State:
    """How far a run has come.

    Args:
        rounds: that are over.
        of: all rounds.
        step: that are taken in the current round.
        steps: of the current round.
        activity: what the run does in place of a step, such as "evaluating".
        entry: the last one of the history.
        best: the best validation score so far.
        left: returns the seconds that are left, or None where that is not known.
        ended: the run is over.
    """

    rounds: int = 0
    of: int = 0
    step: int = 0
    steps: int = 0
    activity: str = ""
    entry: dict[str, Any] | None = None
    best: float | None = None
    left: Callable[[], float | None] = lambda: None
    ended: bool = False

    @property
    def share(self) -> float:
        """The share of the rounds that are over, with the steps of the current one."""
        return min((self.rounds + (self.step / self.steps if self.steps else 0)) / (self.of or 1), 1.0)


def status(state: State, width: int) -> str:
    """Return the state in one line of at most `width` columns; where they are few, the least important parts are left
    out.
    """
    parts = _parts(state)
    room = width - _BAR[0] - 1
    while len(parts) > 1 and len(_joined(parts)) > room:
        parts.remove(max(parts))
    text = _joined(parts)
    columns = min(max(width - len(text) - 1, 0), _BAR[1])
    full = round(columns * state.share)
    return f"{'━' * full}{'╌' * (columns - full)} {text}"[:width]


def _parts(state: State) -> list[tuple[int, int, str]]:
    """Return the parts of the line: how easily each is left out, its place, its text."""
    over = state.activity and state.rounds  # what follows a round belongs to it
    current = state.rounds if over else min(state.rounds + 1, state.of)
    parts = [(0, f"round {current:,}/{state.of:,}")]
    if state.ended:
        parts = [(0, f"{state.rounds:,} of {plural(state.of, 'round')}")]
    elif state.activity:
        parts.append((1, state.activity))
    elif state.steps:
        parts.append((3, f"step {state.step:,}/{state.steps:,}"))
    if state.entry:
        parts.append((5, f"loss {state.entry['loss']:.3g}"))
        parts.append((2, f"validation {state.entry['validation']:.4f}"))
    if state.best is not None:
        parts.append((4, f"best {state.best:.4f}"))
    left = None if state.ended else state.left()
    if left is not None:
        parts.append((0, f"{rough_duration(left)} left"))
    return [(ease, place, text) for place, (ease, text) in enumerate(parts)]


def _joined(parts: list[tuple[int, int, str]]) -> str:
    return _APART.join(text for _, _, text in parts)


class Display(Protocol):
    """Where a state is shown."""

    def start(self, state: State) -> None: ...  # noqa: D102
    def changed(self, state: State) -> None:
        """A step was taken, or the activity has changed."""

    def evaluated(self, state: State) -> None:
        """There is a new entry in the history."""

    def stop(self, state: State) -> None: ...  # noqa: D102


class InTerminal:
    """One line, which is kept up to date; what others print appears above it."""

    def start(self, state: State) -> None:
        """Begin to show the line."""
        console = Terminal()
        render = lambda: Text(status(state, console.width), no_wrap=True, end="")  # noqa: E731
        self._live = Live(get_renderable=render, console=console, refresh_per_second=4)
        self._live.start()

    def changed(self, state: State) -> None:
        """Do nothing: the line is drawn anew four times a second."""

    evaluated = changed

    def stop(self, state: State) -> None:
        """Leave the last line on the screen."""
        self._live.stop()


class InLog:
    """One line for each evaluation; if there is none for long, a line that says how far the run has come."""

    def start(self, state: State) -> None:
        """Print how much there is to do."""
        self._begun = self._last = time.monotonic()
        self._wait = _QUIET
        steps = f", the next of {plural(state.steps, 'step')}" if state.steps else ""
        self._print(f"training: {state.rounds:,} of {plural(state.of, 'round')} done{steps}")

    def changed(self, state: State) -> None:
        """Print a line if the last one is long ago."""
        if time.monotonic() - self._last >= self._wait:
            self._wait = min(2 * self._wait, _LONGEST_QUIET)
            self._print(_joined(_parts(state)))

    def evaluated(self, state: State) -> None:
        """Print the scores."""
        assert state.entry
        entry, left = state.entry, state.left()
        parts = [f"round {entry['round']:,}/{state.of:,}", f"epoch {entry['epoch']:.4g}", f"loss {entry['loss']:.3g}"]
        parts.append(f"validation {entry['validation']:.4f}")
        parts += [f"best {state.best:.4f}"] if state.best is not None else []
        parts.append(f"{duration(entry['train_seconds'])} of training")
        parts += [f"{rough_duration(left)} left"] if left else []
        self._print(_APART.join(parts))
        self._wait = _QUIET

    def stop(self, state: State) -> None:
        """Do nothing: the scores are printed."""

    def _print(self, text: str) -> None:
        self._last = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            print(text, file=sys.stderr, flush=True)


class InNotebook:
    """One line of output that is replaced; it needs no widgets."""

    _WIDTH = 100

    def start(self, state: State) -> None:
        """Begin the line."""
        from IPython.display import display

        self._drawn = time.monotonic()
        self._handle = display({"text/plain": status(state, self._WIDTH)}, raw=True, display_id=True)

    def changed(self, state: State) -> None:
        """Replace the line, but not too often."""
        if time.monotonic() - self._drawn >= _NOTEBOOK_EVERY:
            self._draw(state)

    def evaluated(self, state: State) -> None:
        """Likewise."""
        self.changed(state)

    def stop(self, state: State) -> None:
        """Leave the last line."""
        self._draw(state)

    def _draw(self, state: State) -> None:
        self._drawn = time.monotonic()
        self._handle.update({"text/plain": status(state, self._WIDTH)}, raw=True)


def display_here() -> Display:
    """Return the display that suits standard error."""
    console = Terminal()
    if console.is_jupyter:
        return InNotebook()
    return InTerminal() if console.is_terminal else InLog()


class TaskProgress:
    """How many of some tasks, such as runs, are finished.

    A terminal shows a bar. A log gets a line when a task is finished, and now and then in between.

    Args:
        label: what is done.
        total: how many tasks there are.
        done: how many of them were finished before.
    """

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self._label, self._total, self._done, self._first, self._within = label, total, done, done, 0.0
        self._begun = self._last = time.monotonic()
        self._wait, self._bar = _QUIET, None
        console = Terminal()
        if console.is_terminal and not console.is_jupyter:
            columns = (TextColumn(label), BarColumn(), TextColumn("{task.fields[count]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(label, total=total, completed=done, count=self._count)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self) -> None:
        """Show that one more task is finished."""
        self._done += 1
        self._within, self._wait = max(self._within - 1, 0.0), _QUIET
        self._show(now=True)

    def within(self, tasks: float) -> None:
        """Show how much of the unfinished tasks is done, in tasks."""
        self._within = tasks
        self._show(now=False)

    @property
    def _count(self) -> str:
        return f"{self._done:,} of {self._total:,}"

    def _show(self, *, now: bool) -> None:
        share = min(self._done + self._within, self._total)
        if self._bar:
            self._bar.update(self._task, completed=share, count=self._count)
        elif now or time.monotonic() - self._last >= self._wait:
            self._last, self._wait = time.monotonic(), min(2 * self._wait, _LONGEST_QUIET)
            seconds, fresh = self._last - self._begun, share - self._first
            left = seconds / fresh * (self._total - share) if fresh else None
            parts = [f"{self._label}: {self._count}", duration(seconds)]
            parts += [f"{rough_duration(left)} left"] if left else []
            with contextlib.suppress(BrokenPipeError):
                print(_APART.join(parts), file=sys.stderr, flush=True)
