"""Runs that are trained one after another or side by side, each in a process of its own."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

import torch

from gistgnn.errors import GistError, InputError
from gistgnn.runs.config import RunConfig
from gistgnn.utils.console import show_log

log = logging.getLogger(__name__)

Record = dict[str, Any]
TrainRun = Callable[[RunConfig], Record]
Keep = Callable[[RunConfig, Record], None]  # called with a run and its record as soon as the run is finished


def train_apart(configs: Sequence[RunConfig], train: TrainRun, at_once: int, threads: int, keep: Keep) -> list[str]:
    """Train every run in a process of its own. If a process is killed, the other runs go on.

    `ProcessPoolExecutor` cannot do this: where one of its processes is killed, all of its work fails.

    Args:
        configs: the runs, in the order in which they begin.
        train: trains one run in its process.
        at_once: how many runs train at the same time.
        threads: of torch, in every process.
        keep: see `Keep`.

    Returns:
        The runs whose processes were killed, in words.

    Raises:
        InputError: a run has raised it; all others end.
    """
    waiting, killed = deque(configs), list[str]()
    busy: dict[Any, tuple[RunConfig, BaseProcess]] = {}  # by the pipe on which the process answers
    try:
        while waiting or busy:
            while waiting and len(busy) < at_once:
                pipe, theirs = _context().Pipe(duplex=False)
                words = (waiting[0], train, threads, theirs)
                busy[pipe] = waiting.popleft(), _context().Process(target=_work, args=words, daemon=True)
                busy[pipe][1].start()
                theirs.close()
            answered = wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in answered]:
                config, process = busy[pipe]
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    run = f"{config.method}, m = {config.sub_gcns}, seed {config.seed} (status {process.exitcode})"
                    log.warning("the run of %s was killed; the others go on", run)
                    killed.append(run)
                else:
                    if isinstance(answer, str):
                        raise InputError(answer)
                    keep(config, answer)
                    _end(process)
                del busy[pipe]
    finally:
        for _, process in busy.values():
            _end(process)
    return killed


@cache
def _context() -> ForkServerContext | SpawnContext:
    """How processes start: forked from a server that has imported torch, or spawned on Windows."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join()


def _work(config: RunConfig, train: TrainRun, threads: int, pipe: Connection) -> None:
    """Train one run in this process, which leaves signals to its parent and ends with it."""
    torch.set_num_threads(threads)
    for name in ("SIGINT", "SIGHUP", "SIGUSR1"):  # its parent ends it by SIGTERM
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    show_log(shown=False)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(train(config))
    except GistError as error:
        pipe.send(str(error))


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
