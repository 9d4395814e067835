"""The rounds of a run: the steps of each, its m, and which draw of the blocks it has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch.optim import Optimizer

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

    def begin(self, optimizer: Optimizer, training: Training, k: int) -> None:
        """Begin the k-th of these steps: set what the schedule says of it, and clear the gradients of the last step."""
        self.follow_schedule(optimizer, training, k)
        optimizer.zero_grad(set_to_none=True)

    def follow_schedule(self, optimizer: Optimizer, training: Training, k: int) -> None:
        """Give an optimiser what the schedule says of the k-th of these steps."""
        training.begin_step(optimizer, self.first - self.begun + k, self.total)


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
    copies: int  # so many sub-GCNs train, for all; 0: all
    fresh: bool  # the sub-GCNs begin without the moments of earlier rounds
    last: bool  # it ends its phase
    epoch: float  # epochs of the run that are over after it


# `operations` choose how often the model is evaluated; None: after every round.
class Schedule:
    """The rounds of a run; a run without phases counts as one phase, in which `workers` sub-GCNs train at a time."""

    def __init__(
        self, training: Training, steps_per_epoch: int, workers: int, operations: Operations | None = None
    ) -> None:
        self._first = list[RoundPlan]()  # the first round of every phase
        self._epochs = list[tuple[float, float]]()  # of every phase: the epochs before it, and its own
        self.rounds = 0  # T
        # Of every phase: the numbers of its rounds, the steps of each sub-GCN, and ζ.
        self.phases, self.steps, self.local_steps = list[range](), list[int](), list[int]()
        draws, epochs_before = 0, 0.0
        for phase in training.phases or (None,):
            own = training.of_phase(phase) if phase else training
            m, copies, epochs = (phase.sub_gcns, phase.copies, phase.epochs) if phase else (None, 0, own.all_epochs)
            trained = int(copies) or m or workers
            steps = own.steps(steps_per_epoch, trained, epochs)
            zeta, evaluate_every = own.steps_in_round(steps, trained), own.evaluate_every
            rounds = range(self.rounds, self.rounds - (-steps // zeta))
            if evaluate_every == "auto":
                evaluate_every = 1
                if operations and own.patience is None:
                    taken = min(zeta, steps) * trained
                    evaluate_every = operations.evaluate_every(m, copies=int(copies), steps=taken, rounds=len(rounds))
            # A phase that keeps its blocks begins with the last draw of the phase before.
            first_draw = draws if own.redraw_every else max(draws - 1, 0)
            draws = first_draw + (-(-len(rounds) // own.redraw_every) if own.redraw_every else 1)
            before = sum(self.steps)
            first = RoundPlan(
                replace(own, local_steps=zeta, evaluate_every=evaluate_every), zeta, evaluate_every,
                StepRange(before, min(zeta, steps), steps, before), sub_gcns=m, workers=trained, draw=first_draw,
                copies=int(copies), fresh=True, last=len(rounds) == 1,
                epoch=epochs_before + epochs * min(zeta, steps) / steps,
            )  # fmt: skip
            self._first.append(first)
            self._epochs.append((epochs_before, epochs))
            self.rounds, epochs_before = rounds.stop, epochs_before + epochs
            self.phases.append(rounds)
            self.steps.append(steps)
            self.local_steps.append(zeta)

    def plan(self, number: int) -> RoundPlan:
        """What round t does; the last round of a phase may be shorter."""
        phase = next(phase for phase, rounds in enumerate(self.phases) if number in rounds)
        first, rounds, (before, epochs) = self._first[phase], self.phases[phase], self._epochs[phase]
        place, every, steps = number - rounds.start, first.training.redraw_every, first.steps
        done = place * first.local_steps  # steps of the phase before the round
        count = min(first.local_steps, steps.total - done)
        redrawn = bool(every) and place % every == 0 and first.workers > 1
        carries = first.training.optimizer_state == "carry"
        return replace(
            first,
            steps=replace(steps, first=steps.first + done, count=count),
            draw=first.draw + (place // every if every else 0),
            fresh=place == 0 or (redrawn and not carries and every != 1),
            last=number == rounds[-1],
            epoch=before + epochs * (done + count) / steps.total,
        )

    def draws(self, rounds: int) -> Counter[tuple[tuple[int | None, int], ...]]:
        """How the first rounds share draws: for every kind of draw, as (m, rounds) pairs, how many there are."""
        found: Counter[tuple[tuple[int | None, int], ...]] = Counter()
        last, shared = -1, Counter[int | None]()  # the newest draw, which the next phase may keep
        for first, own in zip(self._first, self.phases, strict=True):
            m, every = first.sub_gcns, first.training.redraw_every
            done = min(len(own), rounds - own.start)
            if done <= 0:
                break
            full, rest = divmod(done, every) if every else (0, done)
            if not rest:
                full, rest = full - 1, every
            if shared and first.draw != last:
                found[tuple(shared.items())] += 1
                shared = Counter()
            if full:
                found[((m, every),)] += full
            shared[m] += rest
            last = first.draw + full
        if shared:
            found[tuple(shared.items())] += 1
        return found


def check_phases(phases: Sequence[Phase], partition: Partition, input_axis: int | None = None) -> None:
    """Raise InputError unless the axes can be split as the phases say."""
    for phase in phases:
        own = partition.split_into(phase.sub_gcns)
        if not phase.copies:
            continue
        if input_axis in partition.split:
            raise InputError("a phase has copies, but the input features are partitioned: leave their axis whole")
        if own.kind == "categorical":
            raise InputError("the partition is categorical, but copies need equal blocks: use the balanced partition")
        for axis in own.split:
            if (d := own.features[axis]) % phase.sub_gcns:
                uneven = f"{d} features of {own.names[axis]} do not make {phase.sub_gcns} equal blocks"
                raise InputError(f"{uneven}, which copies need: change the width or sub_gcns")
    if partition.kind == "categorical" and len({phase.sub_gcns for phase in phases}) > 1:
        raise InputError("the partition is categorical, but the phases differ in m: use the balanced partition")
