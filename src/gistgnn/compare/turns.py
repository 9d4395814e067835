"""Runs that take turns on one machine, so that other load on the machine slows all of them alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from gistgnn.compare.processes import process_context, set_up_process
from gistgnn.errors import GistError, InputError
from gistgnn.runs.config import RunConfig

TURN = 0.5  # seconds; a turn lasts at least one round

Record = dict[str, Any]
Train = Callable[[RunConfig, Callable[[int, int], None], Callable[[], bool]], Record]


def take_turns(
    configs: Sequence[RunConfig], train: Train, threads: int, keep: Callable[[RunConfig, Record], None]
) -> None:
    """Train several runs in turns: each has a process of its own, and the least advanced one works next.

    A run pauses only between two rounds, when its clock stands still.

    Args:
        configs: the runs.
        train: trains one run in its process; takes the run and the `advance` and `stop` callbacks of `GIST.fit`.
        threads: of torch, for the run whose turn it is.
        keep: called with a run and its record as soon as the run is finished.

    Raises:
        InputError: a run raised it, or its process died; the other processes are ended.
    """
    workers = [_Worker(config, train, threads) for config in configs]
    try:
        while waiting := [worker for worker in workers if not worker.finished]:
            worker = min(waiting, key=lambda worker: worker.progress)
            record = worker.work()
            if record is not None:
                keep(worker.config, record)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """The process of one run, as the process that hands out the turns sees it.

    Attributes:
        config: the run.
        progress: the share of the run that is done, in [0, 1].
        finished: whether the run is done.
    """

    def __init__(self, config: RunConfig, train: Train, threads: int) -> None:
        self.config, self.progress, self.finished = config, 0.0, False
        self._pipe, theirs = process_context().Pipe()
        self._process = process_context().Process(target=_work, args=(config, train, threads, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def work(self) -> Record | None:
        """Let the run work for one turn; return its record if that finished it."""
        try:
            self._pipe.send("go")
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise InputError(
                f"the run of {self.config.method}, m = {self.config.sub_gcns}, ended with status "
                f"{self._process.exitcode}: read its last output, check the free memory, and run the same command "
                "again to resume"
            ) from error
        if kind == "failed":
            raise InputError(content)
        if kind == "paused":
            self.progress = content
            return None
        self.finished = True
        return content

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        self._process.join()


def _work(config: RunConfig, train: Train, threads: int, pipe: Connection) -> None:
    """Train one run in this process, one turn at a time."""
    set_up_process(threads)
    turn = _Turn(pipe)
    try:
        pipe.send(("done", train(config, turn.advance, turn.pause)))
    except GistError as error:
        pipe.send(("failed", str(error)))


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
