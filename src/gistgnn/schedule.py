"""The rounds of a run: how many there are, the steps of each, and which of them are scored."""

from dataclasses import dataclass

from torch.optim import Optimizer

from gistgnn.accounting.costs import Operations
from gistgnn.settings import Training


@dataclass(frozen=True)
class StepRange:
    """The steps that every sub-GCN takes in one round.

    Attributes:
        first: the steps that each sub-GCN took in earlier rounds.
        count: ζ, or fewer in the last round.
        total: the steps of the run, as the learning rate follows the run's progress.
    """

    first: int
    count: int
    total: int

    def rate(self, training: Training, k: int) -> float:
        """The learning rate of the k-th of these steps."""
        return training.rate_at(self.first + k, self.total)

    def begin(self, optimizer: Optimizer, training: Training, k: int) -> None:
        """Begin the k-th of these steps: follow the schedule, and clear the last gradients."""
        self.follow_schedule(optimizer, training, k)
        optimizer.zero_grad(set_to_none=True)

    def follow_schedule(self, optimizer: Optimizer, training: Training, k: int) -> None:
        """Give an optimiser the learning rate of the k-th of these steps.

        A scheduler of torch may set more, such as momentum.
        """
        training.begin_step(optimizer, self.first + k, self.total)


class Schedule:
    """The rounds of a run in which `workers` sub-GCNs train at a time.

    Args:
        training: settings that are complete (`gistgnn.defaults.complete`).
        steps_per_epoch: batches that make an epoch.
        workers: m, or the workers of a baseline.
        operations: choose how often the model is scored, where the settings leave it open. Defaults
            to after every round.

    Attributes:
        rounds: T.
        steps: the steps that each sub-GCN takes in the whole run.
        local_steps: ζ, as it was given or chosen.
        evaluate_every: rounds between two scores, as it was given or chosen.
    """

    def __init__(
        self,
        training: Training,
        steps_per_epoch: int,
        workers: int,
        operations: Operations | None = None,
    ) -> None:
        self._epochs = training.all_epochs
        self.steps = training.steps(steps_per_epoch, workers)
        self.local_steps = training.steps_in_round(self.steps, workers)
        self.rounds = -(-self.steps // self.local_steps)
        self.evaluate_every = 1
        if training.evaluate_every != "auto":
            self.evaluate_every = training.evaluate_every
        elif operations is not None and training.patience is None:
            steps_in_round = min(self.local_steps, self.steps) * workers
            self.evaluate_every = operations.evaluate_every(
                steps=steps_in_round, rounds=self.rounds
            )

    def steps_of(self, number: int) -> StepRange:
        """Return the steps of round t, counted from 0; the last round may be shorter."""
        first = number * self.local_steps
        return StepRange(first, min(self.local_steps, self.steps - first), self.steps)

    def epochs_after(self, rounds: int) -> float:
        """Return the epochs that are over after some rounds."""
        return self._epochs * min(rounds * self.local_steps, self.steps) / self.steps

    def is_scored_after(self, rounds: int) -> bool:
        """Whether the model is scored when some rounds are over."""
        return rounds % self.evaluate_every == 0 or rounds == self.rounds
