"""Figure 5: how often sub-GCNs are merged (appendix A.2). GCN 256-256 on small graphs, every ζ and m."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.paper.small_graphs import DROPOUT, scores_of, small_run
from gistgnn.utils.formats import mean_sd

ROBUST = 3.0  # points between the best and the worst ζ
HIDDEN = (256, 256)


@dataclass(frozen=True)
class LocalIterations(Experiment):
    """Figure 5; see `Experiment`. `epochs` are those of every sub-GCN.

    Args:
        local_steps: every ζ.
        sub_gcns: every m.
    """

    local_steps: tuple[int, ...] = (1, 5, 10, 20, 50, 100)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    name: ClassVar[str] = "local-iterations"
    title: ClassVar[str] = "Figure 5: local iterations"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400, "local_steps": (5, 20, 100)},
        "full": {"datasets": ("cora", "citeseer", "pubmed", "ogbn-arxiv"), "seeds": 5, "epochs": 400},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Run every ζ and m."""
        cells = [(dataset, m, zeta) for dataset in self.datasets for m in self.sub_gcns for zeta in self.local_steps]
        wanted = [
            small_run(dataset, HIDDEN, m, self.epochs, zeta, seed, self.device)
            for dataset, m, zeta in cells
            for seed in range(self.seeds)
        ]
        records = iter(store.run_all(wanted, jobs, self.name))
        found = {cell: scores_of([next(records) for _ in range(self.seeds)]) for cell in cells}
        mean = {cell: statistics.fmean(scores) for cell, scores in found.items()}
        rows = [
            [dataset, str(m), *(mean_sd(found[dataset, m, zeta]) for zeta in self.local_steps)]
            for dataset in self.datasets
            for m in self.sub_gcns
        ]
        columns = ["data set", "m", *(f"ζ = {zeta}" for zeta in self.local_steps)]
        verdicts = [self._verdict(dataset, m, mean) for dataset in self.datasets for m in self.sub_gcns]
        charts = [self._chart(dataset, mean) for dataset in self.datasets]
        return Outcome(columns, rows, self._note(), verdicts, charts)

    def _verdict(self, dataset: str, m: int, mean: dict[tuple[str, int, int], float]) -> Verdict:
        scores = [mean[dataset, m, zeta] for zeta in self.local_steps]
        return Verdict(
            f"{dataset}, m = {m}: accuracy hardly depends on ζ (at most {ROBUST:g} points)",
            max(scores) - min(scores) <= ROBUST if len(scores) > 1 else None,
            f"{min(scores):.2f} to {max(scores):.2f}",
        )

    def _chart(self, dataset: str, mean: dict[tuple[str, int, int], float]) -> Chart:
        series = [
            Series(f"m = {m}", self.local_steps, [mean[dataset, m, zeta] for zeta in self.local_steps])
            for m in self.sub_gcns
        ]
        return Chart(f"Accuracy by ζ, {dataset}", "ζ, local steps", "test accuracy (%)", series, logx=True)

    def _note(self) -> str:
        return (
            "Test accuracy in percent at the best validation score of a GCN with hidden layers of 256 and 256, "
            f"{self.epochs} epochs for every sub-GCN, full batch, Adam at 0.05 without weight decay, a step schedule, "
            f"dropout {DROPOUT:g} on hidden features, mean ± standard deviation over {self.seeds} seeds. Scores are "
            "taken after every round, so that a small ζ has more to choose from. The paper has curves alone and "
            "gives no numbers; rates and dropout are not in its text."
        )
