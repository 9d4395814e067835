"""Who trains the sub-GCNs of a round, and how the trained slices reach every copy of Θ."""

from collections.abc import Mapping, Sequence
from typing import Any

from gistgnn.distributed import Alone, World
from gistgnn.partition import Blocks
from gistgnn.theta.trained import RoundReport, Trained


class Exchange:
    """One process trains all sub-GCNs, and there is nobody to exchange them with.

    A subclass deals the sub-GCNs to ranks (see `gistgnn.theta.ranks.between_ranks`).

    Attributes:
        ranks: the processes of the run.
    """

    def __init__(self, ranks: World | None = None) -> None:
        self.ranks = ranks or Alone()

    def members(self, sub_gcns: int) -> list[int]:
        """The sub-GCNs that this process trains, of m."""
        return list(range(sub_gcns))

    def agree(self, report: RoundReport, trained: Mapping[int, Trained]) -> RoundReport:
        """Merge the reports of all processes.

        Args:
            report: of this process.
            trained: its sub-GCNs, where they are in memory.

        Raises:
            InputError: the report of some process holds an error; all processes raise the first.
        """
        if report.error:
            raise report.error
        return report

    def collect(self, blocks: Sequence[Blocks], trained: dict[int, Trained]) -> dict[int, Trained]:
        """Return the sub-GCNs that this process writes into its copy of Θ: its own ones, and those it receives."""
        return trained

    def communication(self, theta_bytes: int, local_steps: int) -> dict[str, Any] | None:
        """What the ranks have exchanged so far (see `gistgnn.distributed.communication`); None for one process."""
        return None
