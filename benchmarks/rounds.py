"""Measures all contenders of a case in turn, round by round."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from multiprocessing.context import BaseContext
from typing import Any

from benchmarks.case import Case
from benchmarks.worker import Pace, Spec, Worker

Samples = dict[str, dict[str, list[Any]]]


def measure(
    case: Case,
    specs: Sequence[Spec],
    pace: Pace,
    *,
    title: str,
    repeat: int,
    stretches: int,
    context: BaseContext | None = None,
) -> tuple[dict[str, Any], Samples]:
    """Measure every contender in its own process, which sleeps while another is measured.

    Args:
        case: the shared settings.
        specs: the contenders.
        pace: how long one measurement is.
        title: names the case in the progress on standard error.
        repeat: rounds over all contenders.
        stretches: rounds that also time a stretch of training.
        context: starts the processes; see `Worker`.

    Returns:
        The facts of every contender, or {"error": ...} if it could not run; and its samples of "step" and "stretch".
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(closing(Worker(spec, case, pace, context))) for spec in specs]
        about = {worker.spec.name: worker.ready() for worker in workers}
        samples: Samples = {name: {"step": [], "stretch": []} for name in about}
        for number in range(repeat):
            say(f"{title}: round {number + 1} of {repeat}")
            for worker in workers:
                name = worker.spec.name
                for what in ("step", "stretch") if number < stretches else ("step",):
                    if "error" in about[name] or (what, worker.spec.kind) == ("stretch", "machine"):
                        continue
                    answer = worker.ask(what)
                    if "error" in answer:
                        about[name] |= answer
                    else:
                        samples[name][what].append(answer)
    return about, samples


def say(what: str) -> None:
    """Print progress on standard error, apart from the tables."""
    print(what, file=sys.stderr, flush=True)
