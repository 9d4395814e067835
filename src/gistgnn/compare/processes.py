"""The processes that runs are done in."""

from __future__ import annotations

import multiprocessing
import os
import signal
from functools import cache
from multiprocessing import parent_process
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Thread

import torch


@cache
def context() -> ForkServerContext | SpawnContext:
    """How processes are started: forked from one that has imported torch, where there is such a thing."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


def begin(threads: int) -> None:
    """Set up a process that does runs: it leaves Ctrl-C to its parent, and ends when that is gone, however it went."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
