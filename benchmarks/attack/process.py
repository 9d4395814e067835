"""Processes of cases, forked from one that has imported everything, so that thousands are cheap."""

import contextlib
import itertools
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEMORY = 12 * 2**30  # bytes of address space that a case may take
_FILTERS = list(warnings.filters)  # as a command has them
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """What a case has done."""

    status: int  # the exit status; below 0: the signal that has ended it
    out: str  # what it has printed on standard output
    err: str  # likewise, on standard error
    late: bool  # it was still running at its time limit, and was killed
    seconds: float


class Forked:
    """A process that runs a function in a folder; what the function returns is its exit status.

    What it prints goes into files beside the folder. ``environ`` are more environment variables.
    """

    def __init__(self, work: Callable[[], int], folder: Path, **environ: str) -> None:
        number = next(_NUMBERS)
        self._written = [
            folder.with_name(f"{folder.name}.{name}{number}") for name in ("out", "err")
        ]
        self._begun = time.monotonic()
        self._status = None
        for path in self._written:  # A signal may end the process before it opens them.
            path.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self._prepare(folder, environ)
                status = _status(work)
            finally:
                os._exit(status & 255)

    def _prepare(self, folder: Path, environ: dict[str, str]) -> None:
        """Make this process like one that a shell has started."""
        os.setsid()
        warnings.filters[:] = _FILTERS
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ.update(environ)
        os.chdir(folder)
        for handle, path in enumerate((Path(os.devnull), *self._written)):
            os.dup2(os.open(path, os.O_WRONLY if handle else os.O_RDONLY), handle)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115

    @property
    def status(self) -> int | None:
        """The exit status; None: it is still running."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.status is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until it ends; False: it still runs after so many seconds."""
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            time.sleep(0.005)
        return self.status is not None

    def outcome(self, limit: float) -> Outcome:
        """Wait for its end, kill it at the limit, and return what it has done."""
        late = not self.wait(limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # The group has what the process has started, too.
        self.wait(10)
        out, err = (
            path.read_text(encoding="utf-8", errors="surrogateescape") for path in self._written
        )
        for path in self._written:
            path.unlink()
        assert self._status is not None
        return Outcome(self._status, out, err, late, time.monotonic() - self._begun)


def _status(work: Callable[[], int]) -> int:
    try:
        status = int(work() or 0)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        status = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def gistgnn(words: list[str], *, fresh: bool = False) -> Callable[[], int]:
    """Return the function that runs the command line in a forked process.

    With ``fresh`` a new interpreter runs it there.
    """

    def work() -> int:
        if fresh:
            os.execv(sys.executable, [sys.executable, "-m", "gistgnn", *words])
        sys.argv = ["gistgnn", *words]
        from gistgnn.__main__ import run

        return run()

    return work
