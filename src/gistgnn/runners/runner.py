"""What a runner is given, and what it does."""

from dataclasses import dataclass
from typing import Protocol

from gistgnn.round import Round
from gistgnn.sampling import Sampler
from gistgnn.settings import Training


@dataclass(frozen=True)
class Stretch:
    """The steps that every sub-GCN takes in one round.

    Args:
        first: steps that each sub-GCN took in earlier rounds.
        count: ζ, or what is left of the run.
        total: steps of the whole run; the schedule follows first / total.
    """

    first: int
    count: int
    total: int

    def rate(self, training: Training, k: int) -> float:
        """The learning rate of the k-th of these steps."""
        return training.rate((self.first + k) / self.total)


class Schedule:
    """How the steps of a run are dealt out to rounds.

    Args:
        training: ζ, and how many epochs.
        steps_per_epoch: of the sampler.
        sub_gcns: m.
    """

    def __init__(self, training: Training, steps_per_epoch: int, sub_gcns: int) -> None:
        self._local = training.local_steps
        self._total = training.steps(steps_per_epoch, sub_gcns)
        self.rounds = -(-self._total // self._local)

    def stretch(self, number: int) -> Stretch:
        """The steps of round t; the last round may be shorter."""
        first = number * self._local
        return Stretch(first, min(self._local, self._total - first), self._total)


Losses = dict[int, float]  # sub-GCN -> mean over its steps


class Runner(Protocol):
    """Trains the sub-GCNs of a round. A new runner is a new file here and an entry in `RUNNERS`."""

    def __call__(self, round_: Round, sampler: Sampler, training: Training, stretch: Stretch, seed: int) -> Losses:
        """Train the sub-GCNs of a round for a stretch of steps, and return the mean loss of each.

        A step whose batch has no training node is passed over; a sub-GCN that took no other has no loss. After a loss
        that is not finite, the runner may leave the rest of the round.

        Args:
            round_: the sub-GCNs.
            sampler: the batches; every sub-GCN sees the same ones, unless the sampler makes them independent.
            training: optimiser, schedule, clipping, precision.
            stretch: which steps of the run these are.
            seed: the run's seed, from which dropout follows.
        """


def keeps_moments(round_: Round, training: Training) -> bool:
    """Whether the optimisers go on from the last round: they always do in the baseline, which is ordinary training."""
    return training.optimizer_state == "carry" or len(round_) == 1
