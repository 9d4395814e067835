"""The rounds of a run: the steps of each, its m, and which draw of the blocks it has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gistgnn.accounting.costs import Operations
from gistgnn.errors import InputError
from gistgnn.partition import Partition
from gistgnn.settings import Phase, Training


@dataclass(frozen=True)
class StepRange:
    """The steps that every sub-GCN takes in one round."""

    first: int  # steps that each sub-GCN took in earlier rounds
    count: int  # ζ, or fewer in the last round
    total: int  # steps of the phase; the learning rate follows the phase's progress
    begun: int = 0  # steps that each sub-GCN took in earlier phases

    def rate(self, training: Training, k: int) -> float:
        """The learning rate of the k-th of these steps."""
        return training.rate_at(self.first - self.begun + k, self.total)


@dataclass(frozen=True)
class RoundPlan:
    """What a round does."""

    training: Training  # the settings of its phase
    local_steps: int  # ζ, also where it was chosen
    evaluate_every: int  # rounds between evaluations, also where they were chosen
    steps: StepRange
    sub_gcns: int | None  # m; None: the m of the `GIST`
    workers: int  # how many sub-GCNs train
    draw: int  # the number of its draw of the blocks
    copies: bool  # only sub-GCN 0 trains, for all
    lasting: bool  # the next round may have the same blocks, so moments are kept
    fresh: bool  # the sub-GCNs begin without the moments of earlier rounds
    last: bool  # it ends its phase
    epoch: float  # epochs of the run that are over after it

    @property
    def rate(self) -> float:
        """The learning rate of the round's last step."""
        return self.steps.rate(self.training, self.steps.count - 1)


class _Part(NamedTuple):
    """A phase, and how much of the run comes before it."""

    training: Training
    sub_gcns: int | None  # None: the m of the `GIST`, in a run without phases
    workers: int
    copies: bool
    local_steps: int
    evaluate_every: int
    steps: int
    rounds: range  # their numbers in the run
    first_draw: int
    epochs: float
    steps_before: int
    epochs_before: float


class Schedule:
    """The rounds of a run.

    `workers` sub-GCNs train at the same time where there are no phases. `operations` choose how often the model is
    evaluated; None: after every round. A run without phases counts as one phase.
    """

    def __init__(
        self, training: Training, steps_per_epoch: int, workers: int, operations: Operations | None = None
    ) -> None:
        self._parts: list[_Part] = []
        self.rounds = 0  # T
        # Of every phase: the numbers of its rounds, the steps of each sub-GCN, and ζ.
        self.phases, self.steps, self.local_steps = list[range](), list[int](), list[int]()
        draws, epochs_before = 0, 0.0
        for phase in training.phases or (None,):
            own = training.of_phase(phase) if phase else training
            m, copies, epochs = (phase.sub_gcns, phase.copies, phase.epochs) if phase else (None, False, own.epochs)
            trained = 1 if copies else m or workers
            steps = own.steps(steps_per_epoch, trained, epochs)
            zeta, evaluate_every = own.steps_in_round(steps, trained), own.evaluate_every
            rounds = range(self.rounds, self.rounds - (-steps // zeta))
            if evaluate_every == "auto":
                evaluate_every = 1
                if operations and own.patience is None:
                    taken = min(zeta, steps) * trained
                    evaluate_every = operations.evaluate_every(m, copies=copies, steps=taken, rounds=len(rounds))
            # A phase that keeps its blocks begins with the last draw of the phase before.
            first_draw = draws if own.redraw_every else max(draws - 1, 0)
            draws = first_draw + (-(-len(rounds) // own.redraw_every) if own.redraw_every else 1)
            own = replace(own, local_steps=zeta, evaluate_every=evaluate_every)
            of_run = (rounds, first_draw, epochs, sum(self.steps), epochs_before)
            self._parts.append(_Part(own, m, trained, copies, zeta, evaluate_every, steps, *of_run))
            self.rounds, epochs_before = rounds.stop, epochs_before + epochs
            self.phases.append(rounds)
            self.steps.append(steps)
            self.local_steps.append(zeta)

    def plan(self, number: int) -> RoundPlan:
        """What round t does; the last round of a phase may be shorter."""
        parts = iter(self._parts)
        while number not in (part := next(parts)).rounds:
            pass
        place, zeta, every = number - part.rounds.start, part.local_steps, part.training.redraw_every
        done = place * zeta  # steps of the phase before the round
        count = min(zeta, part.steps - done)
        carries = part.training.optimizer_state == "carry"
        drawn = bool(every) and place % every == 0 and part.workers > 1
        return RoundPlan(
            training=part.training,
            local_steps=zeta,
            evaluate_every=part.evaluate_every,
            steps=StepRange(part.steps_before + done, count, part.steps, part.steps_before),
            sub_gcns=part.sub_gcns,
            workers=part.workers,
            draw=part.first_draw + (place // every if every else 0),
            copies=part.copies,
            lasting=every != 1,
            fresh=place == 0 or (drawn and not carries and every != 1),
            last=number == part.rounds[-1],
            epoch=part.epochs_before + part.epochs * (done + count) / part.steps,
        )

    def draws(self, rounds: int) -> Counter[tuple[tuple[int | None, int], ...]]:
        """How the first rounds share draws: for every kind of draw, as (m, rounds) pairs, how many there are."""
        found: Counter[tuple[tuple[int | None, int], ...]] = Counter()
        last, shared = -1, Counter[int | None]()  # the newest draw, which the next phase may keep
        for part in self._parts:
            m, every = part.sub_gcns, part.training.redraw_every
            done = min(len(part.rounds), rounds - part.rounds.start)
            if done <= 0:
                break
            full, rest = divmod(done, every) if every else (0, done)
            if not rest:
                full, rest = full - 1, every
            if shared and part.first_draw != last:
                found[tuple(shared.items())] += 1
                shared = Counter()
            if full:
                found[((m, every),)] += full
            shared[m] += rest
            last = part.first_draw + full
        if shared:
            found[tuple(shared.items())] += 1
        return found


def check_phases(phases: Sequence[Phase], partition: Partition, input_axis: int | None = None) -> None:
    """Raise InputError unless the axes can be split as the phases say."""
    for phase in phases:
        own = partition.split_into(phase.sub_gcns)
        if phase.copies:
            if input_axis in partition.split:
                raise InputError("a phase has copies, but the input features are partitioned: leave their axis whole")
            own.check_equal()
    if partition.kind == "categorical" and len({phase.sub_gcns for phase in phases}) > 1:
        raise InputError("the partition is categorical, but the phases differ in m: use the balanced partition")
