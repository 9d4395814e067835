"""Runs that are trained in processes of their own: in turns, so that other load slows all alike, or side by side."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from threading import Thread
from typing import Any

import torch

from gistgnn.errors import GistError, InputError
from gistgnn.fit.callbacks import Callback, Run
from gistgnn.runs.config import RunConfig
from gistgnn.utils.console import show_log

log = logging.getLogger(__name__)

TURN = 0.5  # seconds; a turn lasts at least one round

Record = dict[str, Any]
TrainRun = Callable[[RunConfig, list[Any]], Record]  # trains a run, with callbacks of `GIST.fit`
Keep = Callable[[RunConfig, Record], None]  # called with a run and its record as soon as the run is finished


def take_turns(
    configs: Sequence[RunConfig],
    train: TrainRun,
    threads: int,
    keep: Keep,
    within: Callable[[float], None] = lambda runs: None,
) -> list[str]:
    """Train several runs in turns: the least advanced one works next.

    A run pauses only between two rounds, when its clock stands still. If its process is killed, the others go on.

    Args:
        configs: the runs; all are in memory together.
        train: trains one run in its process.
        threads: of torch, for the run whose turn it is.
        keep: see `Keep`.
        within: called after every turn with how much of the unfinished runs is done, in runs.

    Returns:
        The runs whose processes were killed, in words; see `killed_error`.
    """
    runs = [_RunProcess(config, train, threads, TURN) for config in configs]
    try:
        while unfinished := [run for run in runs if not run.finished]:
            run = min(unfinished, key=lambda run: run.progress)
            run.go_on()
            run.listen(keep)
            within(sum(each.progress for each in runs if not each.finished))
    finally:
        for run in runs:
            run.end()
    return [run.killed for run in runs if run.killed]


def side_by_side(configs: Sequence[RunConfig], train: TrainRun, at_once: int, keep: Keep) -> list[str]:
    """Train runs, `at_once` of them at the same time, with one thread each; otherwise as `take_turns`."""
    waiting, busy, killed = deque(configs), list[_RunProcess](), list[str]()
    try:
        while waiting or busy:
            while waiting and len(busy) < at_once:
                busy.append(_RunProcess(waiting.popleft(), train, 1, float("inf")))
                busy[-1].go_on()
            spoken = wait([run.pipe for run in busy])
            for run in [run for run in busy if run.pipe in spoken]:
                run.listen(keep)
                killed += [run.killed] if run.killed else []
                busy.remove(run)
                run.end()
    finally:
        for run in busy:
            run.end()
    return killed


def killed_error(killed: Sequence[str]) -> InputError:
    """Return the error for runs whose processes were killed, when the others are finished."""
    runs = "run was" if len(killed) == 1 else "runs were"
    return InputError(
        f"{len(killed)} {runs} killed: {'; '.join(killed)}; all others are finished and kept: check the free memory, "
        "and run the same command again"
    )


@cache
def process_context() -> ForkServerContext | SpawnContext:
    """Return how processes are started: forked from a server that has imported torch, or spawned on Windows."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


class _RunProcess:
    """The process of one run, as its parent sees it.

    `ProcessPoolExecutor` is not used: in Python 3.11 it waits for ever if a process is killed while another starts.

    Attributes:
        progress: how much of the run is done, in [0, 1].
        finished: it needs no more turns.
        killed: what has become of its process, in words, if something has killed it.
    """

    def __init__(self, config: RunConfig, train: TrainRun, threads: int, turn: float) -> None:
        self.config, self.progress, self.finished, self.killed = config, 0.0, False, ""
        self.pipe, theirs = process_context().Pipe()
        self._process = process_context().Process(
            target=_work, args=(config, train, threads, turn, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def go_on(self) -> None:
        """Begin a turn; nothing happens if the process was killed, which `listen` finds out."""
        with suppress(OSError):
            self.pipe.send("go")

    def listen(self, keep: Keep) -> None:
        """Wait until the run pauses, is finished, or was killed."""
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            kind, content = "killed", self._process.exitcode
        if kind == "failed":
            raise InputError(content)
        if kind == "paused":
            self.progress = content
            return
        self.finished = True
        if kind == "done":
            keep(self.config, content)
            return
        config = self.config
        self.killed = f"{config.method}, m = {config.sub_gcns}, seed {config.seed} (status {content})"
        log.warning("the run of %s was killed; the others go on", self.killed)

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


class _Turn(Callback):
    """The current turn of a run, as the run's process sees it; the constructor waits for the first turn."""

    def __init__(self, pipe: Connection, seconds: float) -> None:
        self._pipe, self._seconds = pipe, seconds
        self._wait()

    def _wait(self) -> None:
        try:
            self._pipe.recv()
        except (EOFError, OSError):  # nobody hands out turns any more
            os._exit(1)
        self._began = time.perf_counter()

    def on_round_end(self, run: Run, loss: float) -> None:
        """Wait for the next turn if this one is over."""
        if time.perf_counter() - self._began >= self._seconds:
            self._pipe.send(("paused", run.round / run.rounds))
            self._wait()


def _work(config: RunConfig, train: TrainRun, threads: int, turn: float, pipe: Connection) -> None:
    """Train one run in this process, which leaves signals to its parent and ends with it."""
    torch.set_num_threads(threads)
    for name in ("SIGINT", "SIGHUP", "SIGUSR1"):  # SIGTERM is how its parent ends it
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    show_log(shown=False)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(("done", train(config, [_Turn(pipe, turn)])))
    except GistError as error:
        pipe.send(("failed", str(error)))


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
