"""One process per contender. It measures one thing on request, and its peak memory is the contender's alone."""

import math
import os
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import torch

from benchmarks.case import Case
from benchmarks.clock import Clock
from benchmarks.machine import Machine
from benchmarks.ours import GISTContender
from gistgnn.utils.process_memory import peak_memory_bytes

_SPAWN = get_context("spawn")
STEP_BATCHES = 4  # batches that steps use in turn


def forked(*modules: str) -> BaseContext:
    """Return what starts processes from one that has imported these modules: quicker, but memory is not their own."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.worker", *modules])
    return context


@dataclass(frozen=True)
class Pace:
    """How long a measurement is.

    Args:
        seconds: least seconds of one measurement.
        hurry: if one pass takes that long, a stretch is one pass, and is not tried twice.
    """

    seconds: float
    hurry: bool = False


@dataclass(frozen=True)
class Spec:
    """One contender.

    Args:
        name: its name in the tables.
        kind: "pyg", "dgl", "ours" or "machine".
        variant: PyG's layout, or our runner.
        sub_gcns: m; for the machine, all values of m.
    """

    name: str
    kind: str
    variant: str = ""
    sub_gcns: tuple[int, ...] = (1,)


class Worker:
    """A contender in a separate process, idle until a request.

    Args:
        spec: the contender.
        case: the shared settings.
        pace: how long one measurement is.
        context: starts the process; None: a new interpreter.
    """

    def __init__(self, spec: Spec, case: Case, pace: Pace, context: BaseContext | None = None) -> None:
        self.spec = spec
        context = context or _SPAWN
        self._end, other = context.Pipe()
        self._process: Any = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(other, spec, case, pace), daemon=True
        )
        self._process.start()
        other.close()

    def ready(self) -> dict[str, Any]:
        """Wait until it is ready and return its facts, or {"error": ...} if it cannot run."""
        return self._receive()

    def ask(self, what: str) -> dict[str, Any]:
        """Measure "step", "stretch" or "machine"."""
        self._end.send(what)
        return self._receive()

    def close(self) -> None:
        """End the process."""
        self._end.close()
        self._process.join(timeout=20)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._end.recv()
        except EOFError:
            return {"error": f"its process ended (exit code {self._process.exitcode}), perhaps for want of memory"}
        return answer


def _serve(end: Connection, spec: Spec, case: Case, pace: Pace) -> None:
    try:
        measure, about = _open(spec, case, pace)
        end.send(about)
        while True:
            end.send(measure(end.recv()))
    except EOFError:
        return
    except Exception as error:
        traceback.print_exc()
        end.send({"error": f"{type(error).__name__}: {error}".splitlines()[0]})


def _open(spec: Spec, case: Case, pace: Pace) -> Any:
    torch.set_num_threads(case.threads)
    case.set_precision()
    if spec.kind == "machine":
        machine = Machine(case, list(spec.sub_gcns))
        return lambda _: machine.measure(), {"nodes": machine.nodes, "edges": machine.edges}
    before = peak_memory_bytes(torch.device(case.device))
    if spec.kind == "pyg":
        from benchmarks.pyg import PyGContender  # needs memory that our contenders do not need

        contender: Any = PyGContender(case, spec.variant)
    elif spec.kind == "dgl":
        from benchmarks.dgl_nets import DGLContender

        contender = DGLContender(case)
    else:
        contender = GISTContender(case, spec.variant, spec.sub_gcns[0])
    gauge = Gauge(contender, case, pace)
    peak = peak_memory_bytes(torch.device(case.device))
    return gauge.measure, {"peak_bytes": peak, "before_bytes": before, "pid": os.getpid()}


class Gauge:
    """Measures a contender. Two stretches come first; then the process's peak memory is the peak of a run."""

    def __init__(self, contender: Any, case: Case, pace: Pace) -> None:
        self._contender, self._case, self._pace = contender, case, pace
        self._clock = Clock(case.device)
        self._passes = self._warm_up()
        self._clock.read()
        self._batches: list[Any] | None = None
        self._repeats, self._next = 1, 0

    def _warm_up(self) -> int:
        """Train for some passes, and return how many a stretch has."""
        taken = self._timed(lambda: self._contender.stretch(1, self._clock))
        if self._pace.hurry and taken > self._pace.seconds:
            return 1
        # A stretch waits for its first batch: with several sub-GCNs, it needs more batches than one.
        least = 2 if self._contender.sub_gcns == 1 else 5
        return self._calibrate(lambda: self._contender.stretch(2, self._clock), 2, least=least)

    def measure(self, what: str) -> dict[str, float]:
        """Return the milliseconds of one step of one sub-GCN, by phase."""
        return self._stretch() if what == "stretch" else self._steps()

    def _stretch(self) -> dict[str, float]:
        self._contender.stretch(self._passes, self._clock)
        times = self._clock.read()
        # In turn, every sub-GCN runs this many steps; fused, one pass is a step of all sub-GCNs.
        steps = self._passes * self._contender.sub_gcns
        theta = times.get("theta", 0.0)
        return {
            "run": (times["total"] - theta) / steps,
            "batches": times["batches"] / steps,
            "theta_per_round": theta,
            "steps": steps,
            "sub_gcns": self._contender.sub_gcns,
        }

    def _steps(self) -> dict[str, float]:
        if self._batches is None:
            with closing(self._contender.sampler.batches(0, STEP_BATCHES)) as made:
                self._batches = list(made)
            taken = self._timed(lambda: self._take(1))
            if not (self._pace.hurry and taken > self._pace.seconds):
                self._repeats = self._calibrate(lambda: self._take(2), 2, least=1)
        return self._take(self._repeats)

    def _take(self, repeats: int) -> dict[str, float]:
        assert self._batches is not None
        for _ in range(repeats):
            batch = self._contender.prepare(self._batches[self._next % len(self._batches)])
            self._next += 1
            with self._clock.span("step"):
                self._contender.step(batch, self._clock)
        times = self._clock.read()
        return {name: value / repeats / self._contender.steps_per_pass for name, value in times.items()}

    def _calibrate(self, run: Callable[[], object], passes: int, *, least: int) -> int:
        """Return the number of passes that a measurement has, by the time of some passes."""
        return max(least, math.ceil(self._pace.seconds * passes / self._timed(run)))

    def _timed(self, run: Callable[[], object]) -> float:
        """Return the seconds that this takes."""
        clock = Clock(self._case.device)
        with clock.span("once"):
            run()
        return clock.read()["once"] / 1e3
