"""The rounds of a run: the steps of each, its m, and which draw of the blocks it has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gistgnn.accounting.costs import Operations
from gistgnn.errors import InputError
from gistgnn.partition import Partition
from gistgnn.phases import Phase
from gistgnn.settings import Training


@dataclass(frozen=True)
class StepRange:
    """The steps that every sub-GCN takes in one round.

    Args:
        first: steps that each sub-GCN took in earlier rounds.
        count: ζ, or fewer in the last round.
        total: steps of the phase; the learning rate follows the phase's progress.
        begun: steps that each sub-GCN took in earlier phases.
    """

    first: int
    count: int
    total: int
    begun: int = 0

    def rate(self, training: Training, k: int) -> float:
        """The learning rate of the k-th of these steps."""
        return training.rate_at(self.first - self.begun + k, self.total)


@dataclass(frozen=True)
class RoundPlan:
    """What a round does.

    Args:
        training: the settings of its phase.
        steps: the steps that every sub-GCN takes.
        sub_gcns: m; None: the m of the `GIST`.
        workers: how many sub-GCNs train.
        draw: the number of its draw of the blocks.
        copies: only sub-GCN 0 trains, for all.
        lasting: the next round may have the same blocks, so moments are kept.
        fresh: the sub-GCNs begin without the moments of earlier rounds.
        last: it ends its phase.
        epoch: epochs of the run that are over after it.
    """

    training: Training
    steps: StepRange
    sub_gcns: int | None
    workers: int
    draw: int
    copies: bool
    lasting: bool
    fresh: bool
    last: bool
    epoch: float

    @property
    def local_steps(self) -> int:
        """ζ, also where it was chosen."""
        assert self.training.local_steps is not None  # `Schedule` has chosen it
        return self.training.local_steps

    @property
    def evaluate_every(self) -> int:
        """Rounds between evaluations, also where they were chosen."""
        assert self.training.evaluate_every != "auto"  # `Schedule` has chosen it
        return self.training.evaluate_every

    @property
    def rate(self) -> float:
        """The learning rate of the round's last step."""
        return self.steps.rate(self.training, self.steps.count - 1)


@dataclass(frozen=True)
class _Part:
    """A phase in the run, and how much comes before it."""

    phase: Phase | None  # None: the only one, with the trainer's m
    training: Training
    local_steps: int
    workers: int
    steps: int
    epochs: float
    steps_before: int
    rounds_before: int
    epochs_before: float
    draws_before: int

    @property
    def rounds(self) -> int:
        return -(-self.steps // self.local_steps)

    @property
    def first_draw(self) -> int:
        """The number of the first draw; a phase that keeps its blocks begins with the last draw of the phase before."""
        return self.draws_before if self.training.redraw_every else max(self.draws_before - 1, 0)

    @property
    def draws_after(self) -> int:
        every = self.training.redraw_every
        return self.first_draw + (-(-self.rounds // every) if every else 1)


class Schedule:
    """The rounds of a run.

    Args:
        training: ζ, the number of epochs, the phases.
        steps_per_epoch: the number of batches of the sampler.
        workers: how many sub-GCNs train at the same time where there are no phases.
        operations: the costs that choose how often the model is evaluated; None: after every round.

    Attributes:
        rounds: T.
        phases: the numbers of every phase's rounds; a run without phases counts as one phase.
    """

    def __init__(
        self, training: Training, steps_per_epoch: int, workers: int, operations: Operations | None = None
    ) -> None:
        self._parts: list[_Part] = []
        epochs: float = 0
        steps = rounds = draws = 0
        for phase in training.phases or (None,):
            own = training.of_phase(phase) if phase else training
            trained = workers if phase is None else 1 if phase.copies else phase.sub_gcns
            passes = phase.epochs if phase else training.epochs
            count = own.steps(steps_per_epoch, trained, passes)
            zeta = own.steps_in_round(count, trained)
            every = own.evaluate_every
            if every == "auto" and (operations is None or own.patience is not None):
                every = 1
            elif every == "auto" and operations is not None:
                m, copies = (phase.sub_gcns, phase.copies) if phase else (None, False)
                taken = min(zeta, count) * trained
                every = operations.evaluate_every(m, copies=copies, steps=taken, rounds=-(-count // zeta))
            own = replace(own, local_steps=zeta, evaluate_every=every)
            part = _Part(phase, own, zeta, trained, count, passes, steps, rounds, epochs, draws)
            self._parts.append(part)
            steps, rounds, epochs = steps + count, rounds + part.rounds, epochs + passes
            draws = part.draws_after
        self.rounds = rounds
        self.phases = [range(part.rounds_before, part.rounds_before + part.rounds) for part in self._parts]

    @property
    def steps(self) -> list[int]:
        """The steps of each sub-GCN in every phase."""
        return [part.steps for part in self._parts]

    @property
    def local_steps(self) -> list[int]:
        """ζ of every phase."""
        return [part.local_steps for part in self._parts]

    def plan(self, number: int) -> RoundPlan:
        """What round t does; the last round of a phase may be shorter."""
        part = next(part for part in self._parts if number < part.rounds_before + part.rounds)
        place, zeta, every = number - part.rounds_before, part.local_steps, part.training.redraw_every
        count = min(zeta, part.steps - place * zeta)
        first = part.steps_before + place * zeta
        carries = part.training.optimizer_state == "carry"
        drawn = bool(every) and place % every == 0 and part.workers > 1
        return RoundPlan(
            training=part.training,
            steps=StepRange(first, count, part.steps, part.steps_before),
            sub_gcns=part.phase.sub_gcns if part.phase else None,
            workers=part.workers,
            draw=part.first_draw + (place // every if every else 0),
            copies=part.phase is not None and part.phase.copies,
            lasting=every != 1,
            fresh=place == 0 or (drawn and not carries and every != 1),
            last=place == part.rounds - 1,
            epoch=part.epochs_before + part.epochs * (first - part.steps_before + count) / part.steps,
        )

    def draws(self, rounds: int) -> Counter[tuple[tuple[int | None, int], ...]]:
        """How the first rounds share draws: for every kind of draw, as (m, rounds) pairs, how many there are."""
        found: Counter[tuple[tuple[int | None, int], ...]] = Counter()
        last, shared = -1, Counter[int | None]()  # the newest draw, which the next phase may keep
        for part in self._parts:
            m, every = part.phase.sub_gcns if part.phase else None, part.training.redraw_every
            done = min(part.rounds, rounds - part.rounds_before)
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


def refuse_phases(training: Training, method: str) -> None:
    """Raise InputError if settings are given that a method without merged sub-GCNs has no use for."""
    unused = Training(epochs=1)
    for name in ("phases", "redraw_every", "cross_weights", "budget"):
        if getattr(training, name) != getattr(unused, name):
            raise InputError(f"{name} is given, but the method is {method}: use gist")
