"""Processes in which runs train, one for each.

So the memory of a run is free when it ends, and one that is killed does not end the others.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Thread

import torch

from gistgnn.runs.config import RunConfig
from gistgnn.storage.record import Record
from gistgnn.utils.console import show_log


def start_once() -> None:
    """Start a process that does nothing: what processes are forked from imports torch, once."""
    with ProcessPoolExecutor(1, _context()) as process, suppress(BrokenProcessPool):
        process.submit(os.getpid).result()


def train_apart(config: RunConfig, train: Callable[[RunConfig], Record]) -> Record:
    """Train a run in a process of its own, and return its record.

    Raises:
        BrokenProcessPool: the process was killed.
    """
    earlier = set(multiprocessing.active_children())
    with ProcessPoolExecutor(1, _context(), _begin, (torch.get_num_threads(),)) as process:
        try:
            return process.submit(train, config).result()
        except KeyboardInterrupt:
            for child in set(multiprocessing.active_children()) - earlier:
                child.terminate()
            raise


@cache
def _context() -> ForkServerContext | SpawnContext:
    """Return how processes start.

    They are forked from a server that has imported torch, or spawned on Windows and beside a GPU.
    """
    # CUDA refuses forks
    if "forkserver" not in multiprocessing.get_all_start_methods() or torch.cuda.is_available():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


def _begin(threads: int) -> None:
    """Prepare a process for one run.

    It leaves signals to its parent, prints nothing, and ends with its parent.
    """
    torch.set_num_threads(threads)
    for name in ("SIGINT", "SIGHUP", "SIGUSR1"):  # its parent ends it by SIGTERM
        with suppress(AttributeError):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    show_log(shown=False)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
