"""The processes that train runs: each trains one at a time, and may be killed without harm to the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Thread
from typing import Any

import torch

from gistgnn.errors import GistError, InputError
from gistgnn.utils.console import show_log


@cache
def process_context() -> ForkServerContext | SpawnContext:
    """Return how processes are started: forked from a server that has imported torch, or spawned on Windows."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


class RunProcess:
    """A process that trains runs, and the pipe to it.

    `ProcessPoolExecutor` is not used: in Python 3.11 it waits for ever if a process is killed while another starts.

    Args:
        work: what the process does; takes its end of the pipe. It sends pairs of a kind and a content; the content of
            `failed` is the message of an InputError.
        threads: of torch.
    """

    def __init__(self, work: Callable[[Connection], None], threads: int) -> None:
        self.pipe, theirs = process_context().Pipe()
        self._process = process_context().Process(target=_run, args=(work, threads, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, content: Any) -> None:
        """Send something to the process; nothing happens if it was killed, which `receive` tells."""
        with suppress(OSError):
            self.pipe.send(content)

    def receive(self) -> tuple[str, Any]:
        """Wait for what the process says.

        Returns:
            A kind and a content; `killed` and the exit status if the process has ended.

        Raises:
            InputError: a run raised it.
        """
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return "killed", self._process.exitcode
        if kind == "failed":
            raise InputError(content)
        return kind, content

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def say(pipe: Connection, train: Callable[[], Any]) -> None:
    """Train a run in this process, and send its record, or the message of its error."""
    try:
        pipe.send(("done", train()))
    except GistError as error:
        pipe.send(("failed", str(error)))


def _run(work: Callable[[Connection], None], threads: int, pipe: Connection) -> None:
    _set_up(threads)
    work(pipe)


def _set_up(threads: int) -> None:
    """Prepare this process for training with so many threads; it leaves signals to its parent, and ends with it."""
    torch.set_num_threads(threads)
    for name in ("SIGINT", "SIGHUP", "SIGUSR1"):  # SIGTERM is how its parent ends it
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    show_log(shown=False)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
