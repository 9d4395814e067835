"""Runs that take turns on one machine, so that what else it does favours none of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from gistgnn.compare.processes import begin, context
from gistgnn.errors import GistError, InputError
from gistgnn.runs.config import RunConfig

TURN = 0.5  # seconds, or a round where that takes longer

Record = dict[str, Any]
Run = Callable[[RunConfig, Callable[[int, int], None], Callable[[], bool]], Record]


def take_turns(configs: Sequence[RunConfig], run: Run, threads: int, keep: Callable[[RunConfig, Record], None]) -> None:
    """Do some runs, each in a process of its own, of which one works at a time: the one that is least advanced.

    A run waits between two of its rounds, when its clock stands still. Each has all threads when it is its turn.

    Args:
        configs: what to run.
        run: does one run in its process, given the `advance` and the `stop` of `GIST.fit`.
        threads: of torch, for each.
        keep: called with what a run gives, when it is finished.

    Raises:
        InputError: what a run raises; the others are ended.
    """
    workers = [_Worker.start(config, run, threads) for config in configs]
    try:
        while waiting := [worker for worker in workers if not worker.finished]:
            worker = min(waiting, key=lambda each: each.advanced)
            record = worker.turn()
            if record is not None:
                keep(worker.config, record)
    finally:
        for worker in workers:
            worker.end()


@dataclass
class _Worker:
    """A process that does one run, seen from the one that gives the turns.

    Attributes:
        config: the run.
        process: where it runs.
        pipe: to it.
        advanced: share of the run that is done.
        finished: it has nothing more to do.
    """

    config: RunConfig
    process: BaseProcess
    pipe: Connection
    advanced: float = 0.0
    finished: bool = field(default=False)

    @classmethod
    def start(cls, config: RunConfig, run: Run, threads: int) -> _Worker:
        ours, theirs = context().Pipe()
        process = context().Process(target=_work, args=(config, run, threads, theirs), daemon=True)
        process.start()
        theirs.close()
        return cls(config, process, ours)

    def turn(self) -> Record | None:
        """Let it work until its turn is over; return its record when it is done."""
        try:
            self.pipe.send("go")
            kind, said = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            raise InputError(
                f"a run of {self.config.method}, m = {self.config.sub_gcns}, has ended with status "
                f"{self.process.exitcode}: see what it printed last, or how much memory there is; the same command "
                "goes on"
            ) from error
        if kind == "failed":
            raise InputError(said)
        if kind == "turn":
            self.advanced = said
            return None
        self.finished = True
        return said

    def end(self) -> None:
        """End its process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _work(config: RunConfig, run: Run, threads: int, pipe: Connection) -> None:
    """Do one run in a process, a turn at a time."""
    begin(threads)
    turns = _Turns(pipe)
    turns.wait()
    try:
        pipe.send(("done", run(config, turns.advance, turns.over)))
    except GistError as error:
        pipe.send(("failed", str(error)))


class _Turns:
    """When a run may work."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._advanced, self._begun = 0.0, 0.0

    def wait(self) -> None:
        """Wait for the next turn; where nobody gives one any more, end."""
        try:
            self._pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        self._begun = time.perf_counter()

    def advance(self, done: int, rounds: int) -> None:
        """Note how far the run is."""
        self._advanced = done / rounds

    def over(self) -> bool:
        """Give the turn away when it is over, and wait for the next one; it never says to stop."""
        if time.perf_counter() - self._begun >= TURN:
            self._pipe.send(("turn", self._advanced))
            self.wait()
        return False
