"""Train for a given time: choose m and the phases by short trials, and keep to the time as the run goes on."""

import itertools
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gistgnn.accounting.costs import theta_bytes
from gistgnn.errors import InputError
from gistgnn.evaluation import evaluate
from gistgnn.layout.width_scaling import rate_factors
from gistgnn.partition import Partition
from gistgnn.sampling import Sampler
from gistgnn.schedule import RoundPlan, Schedule, StepRange, check_phases
from gistgnn.settings import Phase, Training
from gistgnn.subtrain import subtrain
from gistgnn.theta.mean import Mean
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.utils.formats import duration
from gistgnn.utils.process_memory import available_bytes, keep_freed_memory

if TYPE_CHECKING:
    from gistgnn.fit.prepare import Setup
    from gistgnn.global_model import GlobalModel

NARROWEST = 128  # features of a part; narrower ones learn worse, and are not faster by much
FIRST_EPOCHS, FIRST_STEPS = 12, (60, 1000)  # of the first cycle; the steps are limits
TRIAL, LEAST = 0.025, 20  # of the time, for the steps of a trial; and the steps that it has at least
NEAR = 0.1  # of a score: a wider part that is so much worse after a trial is as good in the end
ENOUGH_EPOCHS, ENOUGH_STEPS = 7, 300  # with fewer a part learns less than a narrower one with more
ROUNDS = 20  # in a run, about; the time is checked after each
SCORED = 0.5  # epochs that take as long as an evaluation, about
TIMED = 3  # steps that are timed
SPARED = 0.02  # of the time, for what comes after the last round


def choose(setup: "Setup", sampler: Sampler, seconds: float) -> dict[str, Any]:
    """Choose the phases of a run that has some time left; return settings, reason, times of steps, scores, as JSON."""
    # Parts of several widths are tried for equal times. The chosen one trains in cosine cycles of doubling length, each
    # of which begins where the last one ended: the best validation score of all counts, so a long budget does not
    # overfit. Its copies are the full model; m = 1 is ordinary training. All other settings are kept.
    begun = time.perf_counter()
    keep_freed_memory()  # as a run does
    timed, scores = trials(setup, sampler, seconds)
    near = [m for m in scores if is_near(scores[m], max(scores.values()))]
    if len(scores) < 2:  # there was no time to compare
        near = [m for m in timed if seconds / timed[m] >= enough(sampler)]
    partition, ranks = setup.gist.partition, setup.gist.ranks.count
    m = min(near, default=max(timed))  # the widest of them
    if m < ranks and ranks in near:
        m = ranks
    parts = ranks if m % ranks == 0 else 1  # that every rank trains one of its own costs no time
    scored = SCORED * sampler.steps_per_epoch * timed.get(m // parts, parts * timed[m])  # the last evaluation
    left = max(seconds - (time.perf_counter() - begun) - scored, 0.0)
    steps = max(round((1 - SPARED) * left / timed[m]), 1)
    width = " x ".join(str(partition.features[axis] // m) for axis in partition.split)
    what = f"m = {m}, one part of width {width} trains"
    if parts > 1:
        what = f"m = {m}, every rank trains a part of width {width} on batches of its own"
    what = "ordinary training" if m == 1 else f"{what}{', and is copied' if parts < m else ''}"
    epochs = math.floor(steps / sampler.steps_per_epoch * 10) / 10
    tried = (f", {abs(scores[each]):.3g} in a trial" if each in scores else "" for each in timed)
    times = "; ".join(f"m = {each}: {duration(timed[each])}{trial}" for each, trial in zip(timed, tried, strict=True))
    first = min(max(FIRST_EPOCHS * sampler.steps_per_epoch, FIRST_STEPS[0]), FIRST_STEPS[1])
    fit = f"{epochs:g} epoch{'s' * (epochs != 1)}"
    short = "" if steps >= enough(sampler) else ", fewer than a part needs: give more time"
    run = with_cycles(setup.given, m, cycles(steps, first), sampler.steps_per_epoch, parts)
    return {
        "training": run.as_dict(),
        "reason": f"{what}: there is time for {fit}{short}; a step of one part takes {times}",
        "step_seconds": {str(each): value for each, value in timed.items()},
        "scores": {str(each): value for each, value in scores.items()},
        "evaluation_seconds": scored,
    }


def trials(setup: "Setup", sampler: Sampler, seconds: float) -> tuple[dict[int, float], dict[int, float]]:
    """Return the seconds of a step of a part, by m, and the validation score of a part after a short training."""
    timed: dict[int, float] = {}
    scores: dict[int, float] = {}
    for m in candidates(setup.gist):  # the narrowest first
        timed[m] = step_seconds(setup.gist, sampler, setup.training, m)
        if seconds / timed[m] < enough(sampler):
            break
        steps = int(TRIAL * seconds / timed[m])
        if steps < LEAST or SCORED * sampler.steps_per_epoch > steps:  # an evaluation takes about half an epoch
            continue
        scores[m] = score(setup, trained(setup.gist, sampler, setup.training, m, steps))
        if not is_near(scores[m], max(scores.values())):
            break  # a wider one is slower still
    return timed, scores


def enough(sampler: Sampler) -> int:
    """Return the steps that a part needs for a good score."""
    return max(ENOUGH_EPOCHS * sampler.steps_per_epoch, ENOUGH_STEPS)


def is_near(score: float, best: float) -> bool:
    """Whether a part with this score after a trial is in the end as good as the best, if it is wider."""
    return score >= best - NEAR * abs(best)


def score(setup: "Setup", model: nn.Module) -> float:
    """Return a model's validation score, where more is better."""
    metric = setup.metric
    found = evaluate(model, setup.graph, ("validation",), evaluation=setup.evaluation, metric=metric)
    value = found["validation"][metric.name]
    return -math.inf if value is None else value * (1 if metric.higher_is_better else -1)


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
    spec = narrow(trainer._full_spec, trainer.partition, sub_gcns)
    part = spec.from_seed().to(device).train()
    optimizer = training.make_optimizer(part.parameters(), rate_factors(spec.width_scaling, part, training))

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    with closing(sampler.batches(0, 1 + TIMED)) as batches:
        steps = StepRange(0, 1 + TIMED, 1 + TIMED)
        subtrain(part, optimizer, [next(batches)], training, steps)
        begun = now()
        subtrain(part, optimizer, batches, training, steps)
        return (now() - begun) / TIMED


def trained(trainer: "GlobalModel", sampler: Sampler, training: Training, sub_gcns: int, steps: int) -> nn.Module:
    """Return one of m parts after some steps, with a rate that falls to zero."""
    spec = narrow(trainer._full_spec, trainer.partition, sub_gcns)
    part = spec.from_seed().to(trainer.device).train()
    run = replace(training, schedule="cosine", budget=None, epochs=1)
    optimizer = run.make_optimizer(part.parameters(), rate_factors(spec.width_scaling, part, run))
    with closing(sampler.batches(0, steps)) as batches:
        subtrain(part, optimizer, batches, run, StepRange(0, steps, steps))
    return part


def cycles(steps: int, first: int) -> list[int]:
    """Return the steps of cosine cycles of doubling length that make some steps together; the last takes the rest."""
    found: list[int] = []
    while (rest := steps - sum(found)) >= 3 * first * 2 ** len(found):  # room for this one and the next
        found.append(first * 2 ** len(found))
    return [*found, rest] if rest else found


def with_cycles(
    training: Training, sub_gcns: int, lengths: Sequence[int], steps_per_epoch: int, trained: int = 1
) -> Training:
    """Return the settings of a run in cycles of some steps; of m parts, `trained` train, and the others are copies."""
    copies = trained if trained < sub_gcns else 0
    return replace(
        training,
        phases=tuple(Phase(sub_gcns, trained * steps / steps_per_epoch, copies=copies) for steps in lengths),
        epochs=None,
        budget=None,
        local_steps=max(sum(lengths) // ROUNDS, 1),
        schedule="cosine",
        redraw_every=0,
        cross_weights="zero" if sub_gcns > 1 else "random",
        evaluate_every="auto",
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
            replace(phase, epochs=(end - begins) / steps_per_epoch * (int(phase.copies) or phase.sub_gcns))
            for phase, begins, end in zip(training.phases, [0, *ends], ends, strict=False)
        ]
        return replace(training, phases=tuple(phases), epochs=None)
