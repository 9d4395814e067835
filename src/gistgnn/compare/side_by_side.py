"""Runs that are trained side by side, each in a process of its own."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait

from gistgnn.compare.processes import RunProcess, say
from gistgnn.compare.turns import Record, in_words
from gistgnn.runs.config import RunConfig

log = logging.getLogger(__name__)

Train = Callable[[RunConfig], Record]


def train_side_by_side(
    configs: Sequence[RunConfig], at_once: int, train: Train, keep: Callable[[RunConfig, Record], None]
) -> list[str]:
    """Train runs, several at once, with one thread each.

    If a process is killed, its run is trained again, with half as many at once: memory was short, most likely. A run
    whose process is killed when it is alone is given up; the others go on.

    Args:
        configs: the runs.
        at_once: how many are trained at once.
        train: trains one run in its process.
        keep: called with a run and its record as soon as the run is finished.

    Returns:
        The runs that were given up, in words; see `killed_error`.

    Raises:
        InputError: a run raised it; the other processes are ended.
    """
    waiting, given_up = deque(configs), list[str]()
    busy, idle = list[_Worker](), list[_Worker]()
    try:
        while waiting or busy:
            while waiting and len(busy) < at_once:
                busy.append(idle.pop() if idle else _Worker(train))
                busy[-1].begin(waiting.popleft(), at_once)
            worker = _first_to_speak(busy)
            kind, record = worker.receive()
            busy.remove(worker)
            if kind == "done":
                idle.append(worker)
                keep(worker.config, record)
            elif worker.at_once == 1:
                given_up.append(in_words(worker.config))
                log.warning("the run of %s was killed; the others go on", given_up[-1])
            else:
                waiting.appendleft(worker.config)
                at_once = min(at_once, worker.at_once // 2)
                log.warning("a process was killed; the other runs go on, %d at once", at_once)
    finally:
        for worker in busy + idle:
            worker.end()
    return given_up


class _Worker(RunProcess):
    """A process that trains one run after another.

    Attributes:
        config: the run that it trains.
        at_once: how many runs were trained at once when it began.
    """

    config: RunConfig
    at_once: int

    def __init__(self, train: Train) -> None:
        super().__init__(partial(_work, train), threads=1)

    def begin(self, config: RunConfig, at_once: int) -> None:
        """Begin a run."""
        self.config, self.at_once = config, at_once
        self.send(config)


def _first_to_speak(workers: Sequence[_Worker]) -> _Worker:
    """Wait until one of the processes has said something, or has ended."""
    spoken = wait([worker.pipe for worker in workers])
    return next(worker for worker in workers if worker.pipe in spoken)


def _work(train: Train, pipe: Connection) -> None:
    """Train runs in this process until nobody has more."""
    while True:
        try:
            config = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        say(pipe, partial(train, config))
