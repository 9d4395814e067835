"""Runs that take turns, so that other load on the machine slows all alike."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from gistgnn.compare.processes import RunProcess, say
from gistgnn.errors import InputError
from gistgnn.runs.config import RunConfig

log = logging.getLogger(__name__)

TURN = 0.5  # seconds; a turn lasts at least one round

Record = dict[str, Any]
Train = Callable[[RunConfig, Callable[[int, int], None], Callable[[], bool]], Record]


def take_turns(
    configs: Sequence[RunConfig],
    train: Train,
    threads: int,
    keep: Callable[[RunConfig, Record], None],
    within: Callable[[float], None] = lambda runs: None,
) -> list[str]:
    """Train several runs in turns: each has a process of its own, and the least advanced one works next.

    A run pauses only between two rounds, when its clock stands still. If its process is killed, the others go on.

    Args:
        configs: the runs.
        train: trains one run in its process; takes the run and the `advance` and `stop` callbacks of `GIST.fit`.
        threads: of torch, for the run whose turn it is.
        keep: called with a run and its record as soon as the run is finished.
        within: called after every turn with how much of the unfinished runs is done, in runs.

    Returns:
        The runs whose processes were killed, in words; see `killed_error`.

    Raises:
        InputError: a run raised it; the other processes are ended.
    """
    workers = [_Worker(config, train, threads) for config in configs]
    try:
        while waiting := [worker for worker in workers if not worker.finished]:
            worker = min(waiting, key=lambda worker: worker.progress)
            record = worker.work()
            if record is not None:
                keep(worker.config, record)
            within(sum(each.progress for each in workers if not each.finished))
    finally:
        for worker in workers:
            worker.end()
    return [worker.killed for worker in workers if worker.killed]


def killed_error(killed: Sequence[str]) -> InputError:
    """Return the error for runs whose processes were killed, when the others are finished."""
    runs = "run was" if len(killed) == 1 else "runs were"
    return InputError(
        f"{len(killed)} {runs} killed: {'; '.join(killed)}; all others are finished and kept: check the free memory, "
        "and run the same command again"
    )


def in_words(config: RunConfig) -> str:
    """Return a run in words, for messages."""
    return f"{config.method}, m = {config.sub_gcns}, seed {config.seed}"


class _Worker(RunProcess):
    """The process of one run, as the process that hands out the turns sees it.

    Attributes:
        progress: how much of the run is done, in [0, 1].
        finished: it needs no more turns.
        killed: what has become of its process, in words, if something has killed it.
    """

    def __init__(self, config: RunConfig, train: Train, threads: int) -> None:
        super().__init__(partial(_work, config, train), threads)
        self.config, self.progress, self.finished, self.killed = config, 0.0, False, ""

    def work(self) -> Record | None:
        """Let the run work for one turn; return its record if that finished it."""
        self.send("go")
        kind, content = self.receive()
        if kind == "paused":
            self.progress = content
            return None
        self.finished = True
        if kind == "killed":
            self.killed = f"{in_words(self.config)} (status {content})"
            log.warning("the run of %s was killed; the others go on", self.killed)
            return None
        return content


def _work(config: RunConfig, train: Train, pipe: Connection) -> None:
    """Train one run in this process, one turn at a time."""
    turn = _Turn(pipe)
    say(pipe, lambda: train(config, turn.advance, turn.pause))


class _Turn:
    """The current turn of a run, as the run's process sees it; the constructor waits for the first turn."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._progress = pipe, 0.0
        self._wait()

    def _wait(self) -> None:
        try:
            self._pipe.recv()
        except (EOFError, OSError):  # nobody hands out turns any more
            os._exit(1)
        self._began = time.perf_counter()

    def advance(self, done: int, rounds: int) -> None:
        """Note how many of the rounds are done."""
        self._progress = done / rounds

    def pause(self) -> bool:
        """Wait for the next turn if this one is over; return False, which tells `GIST.fit` to train on."""
        if time.perf_counter() - self._began >= TURN:
            self._pipe.send(("paused", self._progress))
            self._wait()
        return False
