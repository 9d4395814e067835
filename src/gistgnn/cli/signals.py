"""Signals that end a command: Ctrl-C, and those of a scheduler, a closed terminal or a stopped container.

This module imports nothing slow: signals are handled before the rest is imported.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from gistgnn.errors import printable

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
"""They end a run as Ctrl-C does. SIGHUP comes when a terminal is closed; schedulers send SIGTERM or SIGUSR1."""

GRACE = 30.0  # seconds that a round has to end after such a signal
_AGAIN = 1.0  # seconds: the same Ctrl-C may arrive twice, from the terminal and from torchrun


class Interrupted(KeyboardInterrupt):
    """A signal has ended the command.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def status_of(number: int) -> int:
    """Return the exit status of a command that a signal has ended."""
    return 128 + number


def leads() -> bool:
    """Return whether this process prints messages: it is rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Print a line for the user on standard error, where results of other programs are not mixed with it."""
    if leads():
        print(f"gistgnn: {printable(text)}", file=sys.stderr, flush=True)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Inside the block a signal ends the process at once, with one line: for imports, which leave nothing to clean up.

    An exception in the middle of an import would be printed with its trace, or be lost in the module.
    """

    def end(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            if leads():
                os.write(2, b"gistgnn: interrupted\n")
        _end(number)

    with _handling(end):
        yield


@contextmanager
def raising() -> Iterator[None]:
    """Inside the block a signal raises `Interrupted`, so that files are closed and other processes are ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _leave_closed_terminal(number)
        raise Interrupted(number)

    with _handling(interrupt):
        yield


class Stop:
    """Whether a run has been asked to stop; call it.

    Attributes:
        number: the signal that has asked; None: nobody has.
    """

    number: int | None = None

    def __call__(self) -> bool:
        """Whether somebody has asked."""
        return self.number is not None


@contextmanager
def stopping(grace: float = GRACE) -> Iterator[Stop]:
    """Inside the block a signal asks the run to stop after its round.

    After SIGTERM, SIGHUP and SIGUSR1 the process ends `grace` seconds later, if the block has not: the last checkpoint
    counts then. A second Ctrl-C raises `Interrupted`.
    """
    stop, since, timer = Stop(), 0.0, threading.Timer(grace, lambda: _give_up(stop.number or 0, grace))
    timer.daemon = True

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal since
        if stop.number is not None:
            if number == signal.SIGINT and time.monotonic() - since > _AGAIN:
                raise Interrupted(number)
            return
        stop.number, since = number, time.monotonic()
        if number == signal.SIGINT:
            _say_safely("stopping after this round; Ctrl-C again to stop at once")
            return
        _leave_closed_terminal(number)
        timer.start()
        _say_safely(f"{signal.Signals(number).name}: stopping after this round, or in {grace:g} s (--grace)")

    with _handling(ask):
        try:
            yield stop
        finally:
            timer.cancel()


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C and the other signals within the block, but not those that the caller's shell ignores."""
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # no other gets signals
            for number in (signal.SIGINT, *ENDING):
                if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)


def _give_up(number: int, grace: float) -> None:
    """End the process, and those that it has started."""
    import psutil

    _say_safely(f"the round did not end within {grace:g} s: resume from the last checkpoint with --resume")
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            child.kill()
    _end(number)


def _end(number: int) -> NoReturn:
    """End the process without cleaning up, but for the terminal's cursor, which progress bars hide."""
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")
    os._exit(status_of(number))


def _say_safely(text: str) -> None:
    """Print a line, also where the signal has come in the middle of another line."""
    with contextlib.suppress(OSError, RuntimeError):
        say(text)


def _leave_closed_terminal(number: int) -> None:
    """After SIGHUP, send what is printed nowhere: the terminal is closed, and writing there would fail."""
    if number != getattr(signal, "SIGHUP", None):
        return
    with open(os.devnull, "w") as nowhere:
        for handle in (1, 2):
            if os.isatty(handle):
                os.dup2(nowhere.fileno(), handle)
