"""The command line, run as a user runs it."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

Completed = subprocess.CompletedProcess[str]


def command(*args: object) -> list[str]:
    """The command line as the installed script runs it."""
    return [str(Path(sys.executable).with_name("gistgnn")), *map(str, args)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def start(
    words: list[str], folder: Path, environ: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program that Ctrl-C interrupts.

    It does so even where these tests are a shell's background job that ignores it.
    """

    def default_signals() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        words, cwd=folder, env=environ or environment(), preexec_fn=default_signals, **pipes
    )


@cache
def ready() -> ForkServerContext:
    """The process that is forked.

    It has imported what commands and tests import, and run nothing.
    """
    context = multiprocessing.get_context("forkserver")
    our_modules = ("cli.main", "runs.run_folder", "report.pages", "distributed", "estimate")
    our_modules += ("graphs.named", "compare.many_runs")
    other_modules = ("torch._dynamo", "torch_geometric.nn", "pytest", "hypothesis")
    context.set_forkserver_preload([*(f"gistgnn.{name}" for name in our_modules), *other_modules])
    return context


class Forked:
    """A process forked from one that has imported torch already.

    What `work(*args)` returns is its exit status.
    """

    def __init__(
        self, folder: Path, work: Callable[..., int | None], *args: object, **environ: str
    ) -> None:
        self._written = tempfile.TemporaryDirectory()
        prepared = (folder, {**environment(), **environ}, Path(self._written.name))
        self._process = ready().Process(target=_forked, args=(*prepared, work, args))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """What it has written, once it has ended; after so many seconds it is killed."""
        self._process.join(timeout)
        late = self._process.is_alive()
        if late:
            self._process.kill()
            self._process.join()
        out, err = ((Path(self._written.name) / name).read_text() for name in ("out", "err"))
        if late:
            raise subprocess.TimeoutExpired("a forked process", timeout, out, err)
        return out, err

    def completed(self, timeout: float = 120) -> Completed:
        out, err = self.communicate(timeout)
        assert self.returncode is not None
        return subprocess.CompletedProcess("a forked process", self.returncode, out, err)


def start_command(folder: Path, *args: object, **environ: str) -> Forked:
    """Start `gistgnn` in a process of its own."""
    return Forked(folder, _main, [*map(str, args)], **environ)


def run_command(folder: Path, *args: object, timeout: float = 120) -> Completed:
    """Run `gistgnn` to its end in a process of its own."""
    return start_command(folder, *args).completed(timeout)


def run_ranks(
    folder: Path,
    count: int,
    *args: object,
    restarts: int = 0,
    timeout: float = 120,
    last: tuple[object, ...] = (),
) -> list[Completed]:
    """Run `gistgnn` on ranks of this machine; `last` are more arguments for the last rank alone."""
    ranks = start_ranks(folder, count, *args, restarts=restarts, last=last)
    return [rank.completed(timeout) for rank in ranks]


def start_ranks(
    folder: Path, count: int, *args: object, restarts: int = 0, last: tuple[object, ...] = ()
) -> list[Forked]:
    """Start `gistgnn` on ranks of this machine; arguments as for `run_ranks`."""
    common = [*map(str, args)]
    words = [common] * (count - 1) + [[*common, *map(str, last)]]
    told = _told_by_torchrun(count, restarts)
    return [
        Forked(folder, _main, words_of_rank, **environ)
        for environ, words_of_rank in zip(told, words, strict=True)
    ]


def run_program(
    folder: Path, code: str, *args: object, timeout: float = 120, **environ: str
) -> Completed:
    """Run what `python -c` would, in a process that has imported torch already."""
    return Forked(folder, _program, code, [*map(str, args)], **environ).completed(timeout)


def run_program_on_ranks(
    folder: Path, count: int, code: str, *args: object, timeout: float = 120
) -> list[Completed]:
    """Run what `torchrun` would, with a program."""
    words = [*map(str, args)]
    ranks = [Forked(folder, _program, code, words, **told) for told in _told_by_torchrun(count)]
    return [rank.completed(timeout) for rank in ranks]


def _told_by_torchrun(count: int, restarts: int = 0) -> list[dict[str, str]]:
    """What torchrun would tell each rank by its environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    of_all_ranks = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "tests",
        "TORCHELASTIC_MAX_RESTARTS": str(restarts),
    }
    return [{**of_all_ranks, "RANK": str(k), "LOCAL_RANK": str(k)} for k in range(count)]


def _forked(
    folder: Path,
    environ: dict[str, str],
    written: Path,
    work: Callable[..., int | None],
    args: tuple[object, ...],
) -> None:
    import torch

    torch.set_num_threads(1)  # as in the tests' own process: a sum's rounding depends on it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for number, name, mode in (
        (0, os.devnull, "r"),
        (1, written / "out", "w"),
        (2, written / "err", "w"),
    ):
        with open(name, mode) as file:
            os.dup2(file.fileno(), number)
    sys.exit(work(*args))


def _main(words: list[str]) -> int:
    sys.argv = ["gistgnn", *words]
    from gistgnn.cli.main import main

    return main()


def _program(code: str, words: list[str]) -> None:
    sys.argv = ["-c", *words]
    exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
