"""The processes that train the runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
from functools import cache
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Thread

import torch

from gistgnn.utils.console import show_log


@cache
def process_context() -> ForkServerContext | SpawnContext:
    """Return how processes are started: forked from a server that has imported torch, or spawned on Windows."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


def set_up_process(threads: int) -> None:
    """Prepare a process for training; it ignores Ctrl-C, which its parent handles, and ends when its parent ends.

    Args:
        threads: of torch.
    """
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    show_log(shown=False)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
