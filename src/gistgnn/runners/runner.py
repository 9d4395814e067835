"""The form of a runner."""

from typing import Protocol

from gistgnn.round import Round
from gistgnn.sampling import Sampler
from gistgnn.schedule import StepRange
from gistgnn.settings import Training

Losses = dict[int, float]  # sub-GCN -> mean over its steps


class Runner(Protocol):
    """Trains the sub-GCNs of a round."""

    def __call__(self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int) -> Losses:
        """Train the sub-GCNs of a round, and return the mean loss of each that took a step.

        A batch without training nodes makes no step. A loss that is not finite may end the round.

        Args:
            round_: the sub-GCNs.
            sampler: the batches. All sub-GCNs see the same batches, unless the sampler makes them independent.
            training: optimiser, schedule, clipping, precision.
            steps: the steps to take.
            seed: the run's seed; dropout follows from it.
        """


def keeps_moments(round_: Round, training: Training) -> bool:
    """Whether moments are kept from round to round: where they are carried, and where the sub-GCNs stay the same."""
    return training.optimizer_state == "carry" or round_.lasting
