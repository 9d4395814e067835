"""The form of a runner, and the steps that it is told to take."""

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
        count: ζ, or fewer in the last round.
        total: steps of the whole run; the learning rate follows first / total.
    """

    first: int
    count: int
    total: int

    def rate(self, training: Training, k: int) -> float:
        """The learning rate of the k-th of these steps."""
        return training.rate((self.first + k) / self.total)


class Schedule:
    """The rounds of a run and their steps.

    Args:
        training: ζ and the number of epochs.
        steps_per_epoch: the number of batches of the sampler.
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
    """Trains the sub-GCNs of a round."""

    def __call__(self, round_: Round, sampler: Sampler, training: Training, stretch: Stretch, seed: int) -> Losses:
        """Train the sub-GCNs of a round for a stretch of steps, and return the mean loss of each.

        A batch without training nodes makes no step; a sub-GCN without a step has no loss. After a loss that is not
        finite, the runner may skip the rest of the round.

        Args:
            round_: the sub-GCNs.
            sampler: the batches. All sub-GCNs see the same batches, unless the sampler makes them independent.
            training: optimiser, schedule, clipping, precision.
            stretch: the steps to take.
            seed: the run's seed; dropout follows from it.
        """


def keeps_moments(round_: Round, training: Training) -> bool:
    """Whether moments are carried from round to round. With m = 1, which is ordinary training, they always are."""
    return training.optimizer_state == "carry" or len(round_) == 1
