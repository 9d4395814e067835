"""The runners: how the sub-GCNs of a round train.

A new one is a file with a class like `Runner`, and an entry here. This module imports nothing slow,
as the command line reads it.
"""

from typing import TYPE_CHECKING, Literal, Protocol

from gistgnn.utils.checks import check_choice
from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.round import Round
    from gistgnn.sampling import Sampler
    from gistgnn.schedule import StepRange
    from gistgnn.settings import Training

Numbers = dict[int, dict[str, float]]
"""The numbers of each sub-GCN in a round, by name.

"loss" is the mean over its steps. A runner may add other numbers.
"""
RunnerName = Literal["auto", "in-turn", "fused"]
"""The names below, for type checkers; a test compares them."""


class Runner(Protocol):
    """Trains the sub-GCNs of a round."""

    def __call__(
        self,
        round_: "Round",
        sampler: "Sampler",
        training: "Training",
        steps: "StepRange",
        seed: int,
    ) -> Numbers:
        """Train the sub-GCNs of a round for some steps.

        All sub-GCNs see the same batches, unless the sampler makes them independent. A batch
        without training nodes makes no step. A loss that is not finite may end the round.

        Args:
            round_: has the sub-GCNs of this process.
            sampler: has the batches.
            training: the settings, complete.
            steps: which steps of the run these are.
            seed: of the run, from which dropout follows.

        Returns:
            The numbers of each sub-GCN that took a step.
        """


RUNNERS: "Registry[type[Runner]]" = Registry(
    {
        "auto": "gistgnn.runners.auto:Auto",
        "in-turn": "gistgnn.runners.in_turn:InTurn",
        "fused": "gistgnn.runners.fused:Fused",
    }
)
"""The classes of the runners by name."""


def make_runner(name: str) -> Runner:
    """Return a runner; raise InputError if there is none of that name."""
    check_choice("runner", name, RUNNERS)
    return RUNNERS[name]()
