"""Train for a given time: choose m and the phases from measured steps, and keep to the time as the run goes on."""

import itertools
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from gistgnn.accounting.costs import theta_bytes
from gistgnn.errors import InputError
from gistgnn.partition import Partition
from gistgnn.sampling import Sampler
from gistgnn.schedule import RoundPlan, Schedule, check_phases
from gistgnn.settings import Phase, Training
from gistgnn.subtrain import subtrain
from gistgnn.theta.mean import Mean
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.utils.formats import duration
from gistgnn.utils.process_memory import available_bytes, keep_freed_memory

if TYPE_CHECKING:
    from gistgnn.global_model import GlobalModel

NARROWEST = 128  # features of a part; narrower ones learn worse, and are not faster by much
FIRST_EPOCHS, FIRST_STEPS = 4, (60, 600)  # of the first cycle; the steps are limits
ENOUGH = 10  # first cycles after which more width is worth more than more epochs
ROUNDS = 20  # in a run, about; the time is checked after each
SCORED_EVERY = 5  # rounds between evaluations, which the end of each cycle has as well
TIMED = 3  # steps that are timed
SPARED = 0.02  # of the time, for what comes after the last round


def choose(trainer: "GlobalModel", sampler: Sampler, training: Training, seconds: float) -> dict[str, Any]:
    """Choose the phases of a run that has some time left; return settings, reason and times of steps, as JSON."""
    # A narrow part learns about as much in an epoch as the full model, many times cheaper. So the widest part is chosen
    # that still gets `ENOUGH` epochs; m = 1 is ordinary training. It trains in cosine cycles of doubling length, each
    # of which begins where the last one ended: the best validation score of all counts, so a long budget does not
    # overfit. Its copies are the full model. All other settings are kept.
    begun = time.perf_counter()
    keep_freed_memory()  # as a run does
    first = min(max(FIRST_EPOCHS * sampler.steps_per_epoch, FIRST_STEPS[0]), FIRST_STEPS[1])
    timed: dict[int, float] = {}
    chosen = 1
    for m in candidates(trainer):  # the cheapest first
        left = seconds - (time.perf_counter() - begun)
        if timed and left / min(timed.values()) < ENOUGH * first:
            break  # a wider part is not faster
        timed[m] = step_seconds(trainer, sampler, training, m)
        if len(timed) > 1 and left / timed[m] < ENOUGH * first:
            break
        chosen = m
    left = max(seconds - (time.perf_counter() - begun), 0.0)
    steps = max(round((1 - SPARED) * left / timed[chosen]), 1)
    width = " x ".join(str(trainer.partition.features[axis] // chosen) for axis in trainer.partition.split)
    what = "ordinary training" if chosen == 1 else f"m = {chosen}, one part of width {width} trains and is copied"
    epochs = math.floor(steps / sampler.steps_per_epoch * 10) / 10
    times = ", ".join(f"m = {m}: {duration(taken)}" for m, taken in timed.items())
    reason = f"{what}: {epochs:g} epochs fit into the time; a step of one part takes {times}"
    run = with_cycles(training, chosen, cycles(steps, first), sampler.steps_per_epoch)
    return {"training": run.as_dict(), "reason": reason, "step_seconds": {str(m): each for m, each in timed.items()}}


def candidates(trainer: "GlobalModel") -> list[int]:
    """Return every m that may be chosen, the largest first."""
    spec, partition = trainer._full_spec, trainer.partition
    possible = even_parts([partition.features[axis] for axis in partition.split])
    try:
        check_phases([Phase(m, 1, copies=m > 1) for m in possible], partition, trainer.input_axis)
        Mean.of(spec, partition.split, trainer.input_axis, zero=True)
    except InputError:  # this model or partition cannot have copies
        possible = [1]
    room = available_bytes(trainer.device)
    fitting = [m for m in possible if 6 * theta_bytes(narrow(spec, partition, m)) < room]
    return sorted(fitting or possible[-1:], reverse=True)


def even_parts(widths: Sequence[int]) -> list[int]:
    """Return every power of 2 that divides some widths into parts that are not narrower than `NARROWEST`; 1 always."""
    possible, m = [1], 2
    while widths and all(width % m == 0 and width // m >= NARROWEST for width in widths):
        possible.append(m)
        m *= 2
    return possible


def narrow(spec: ModelSpec, partition: Partition, sub_gcns: int) -> ModelSpec:
    """Return the model of one of m parts."""
    return replace(spec, widths=spec.layout.widths(partition.split_into(sub_gcns).sizes(0)[0]))


def step_seconds(trainer: "GlobalModel", sampler: Sampler, training: Training, sub_gcns: int) -> float:
    """Measure the time of a step of one of m parts, with its batch."""
    device = trainer.device
    part = narrow(trainer._full_spec, trainer.partition, sub_gcns).from_seed().to(device).train()
    optimizer = training.make_optimizer(part.parameters())

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    with closing(sampler.batches(0, 1 + TIMED)) as batches:
        subtrain(part, optimizer, [next(batches)], training, lambda _: training.lr)
        begun = now()
        subtrain(part, optimizer, batches, training, lambda _: training.lr)
        return (now() - begun) / TIMED


def cycles(steps: int, first: int) -> list[int]:
    """Return the steps of cosine cycles of doubling length that make some steps together; the last takes the rest."""
    found: list[int] = []
    while (rest := steps - sum(found)) >= 3 * first * 2 ** len(found):  # room for this one and the next
        found.append(first * 2 ** len(found))
    return [*found, rest] if rest else found


def with_cycles(training: Training, sub_gcns: int, lengths: Sequence[int], steps_per_epoch: int) -> Training:
    """Return the settings of a run of one part of 1/m of the width, in cycles of some steps."""
    return replace(
        training,
        phases=tuple(Phase(sub_gcns, steps / steps_per_epoch, copies=sub_gcns > 1) for steps in lengths),
        epochs=0,
        budget=None,
        local_steps=max(sum(lengths) // ROUNDS, 1),
        schedule="cosine",
        cross_weights="zero" if sub_gcns > 1 else "random",
        evaluate_every=SCORED_EVERY,
    )


class Clock:
    """Keeps a run within its budget from now on: the last phase becomes longer or shorter as steps turn out to be."""

    def __init__(self, seconds: float) -> None:
        self._begun = time.perf_counter()
        self._end = self._begun + (1 - SPARED) * seconds
        self._steps = 0

    def adjusted(self, training: Training, plan: RoundPlan, schedule: Schedule, steps_per_epoch: int) -> Training:
        """Return the settings so far with phases that end with the budget; `plan` is the round that has ended."""
        now, taken = time.perf_counter(), plan.steps
        self._steps += taken.count
        left = max(self._end - now, 0.0) * self._steps / max(now - self._begun, 1e-9)  # steps
        total = taken.first + taken.count + round(left)
        planned = itertools.accumulate(schedule.steps[:-1])
        ends = [*itertools.takewhile(lambda end: end < total, planned), total]
        phases = [
            replace(phase, epochs=(end - begins) / steps_per_epoch)
            for phase, begins, end in zip(training.phases, [0, *ends], ends, strict=False)
        ]
        return replace(training, phases=tuple(phases), epochs=0)
