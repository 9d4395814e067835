"""Figure 5: how often sub-GCNs are merged (appendix A.2): GCN 256-256 on small graphs, with every ζ and m."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Experiment, Outcome, Verdict
from gistgnn.paper.small_graphs import DROPOUT, Grid, small_run
from gistgnn.runs.config import RunConfig

ROBUST = 3.0  # points between the best and the worst ζ


@dataclass(frozen=True)
class LocalIterations(Experiment):
    """Figure 5; see `Experiment`. Every sub-GCN gets all epochs.

    Args:
        local_steps: every ζ.
        sub_gcns: every m.
    """

    local_steps: tuple[int, ...] = (1, 5, 10, 20, 50, 100)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    name = "local-iterations"
    title = "Figure 5: local iterations"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400, "local_steps": (5, 20, 100)},
        "full": {"datasets": ("cora", "citeseer", "pubmed", "ogbn-arxiv"), "seeds": 5, "epochs": 400},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Train with every m and ζ."""

        def run_of(dataset: str, m: int, zeta: int) -> RunConfig:
            return small_run(self, dataset, (256, 256), m, zeta)

        grid = Grid.train(self, store, jobs, self.sub_gcns, self.local_steps, run_of)
        return Outcome(
            ["data set", "m", *(f"ζ = {zeta}" for zeta in self.local_steps)],
            [row for dataset in self.datasets for row in grid.rows(dataset)],
            self._note(),
            [self._verdict(dataset, m, grid) for dataset in self.datasets for m in self.sub_gcns],
            [grid.chart(dataset, "Accuracy by ζ", "ζ, local steps", "m = {}") for dataset in self.datasets],
        )

    def _verdict(self, dataset: str, m: int, grid: Grid) -> Verdict:
        scores = [grid.mean(dataset, m, zeta) for zeta in self.local_steps]
        return Verdict(
            f"{dataset}, m = {m}: accuracy hardly depends on ζ (at most {ROBUST:g} points)",
            max(scores) - min(scores) <= ROBUST if len(scores) > 1 else None,
            f"{min(scores):.2f} to {max(scores):.2f}",
        )

    def _note(self) -> str:
        return (
            f"Test accuracy in percent at the best validation score, mean ± standard deviation over {self.seeds} "
            f"seeds. A GCN with hidden layers of 256 and 256, {self.epochs} epochs for every sub-GCN: full batch, "
            f"Adam at 0.05 without weight decay, a step schedule, dropout {DROPOUT:g} on hidden features. Scores are "
            "taken after every round, so a small ζ has more scores to choose from. The paper shows curves and gives "
            "no numbers; its text gives neither learning rates nor dropout."
        )
