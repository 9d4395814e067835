"""Figure 4: GCNs of several depths and widths, trained on one device on small graphs (appendix A.2)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Experiment, Outcome, Verdict
from gistgnn.paper.small_graphs import DROPOUT, Grid, small_run
from gistgnn.runs.config import RunConfig

STEPS_BETWEEN_SCORES = 20


@dataclass(frozen=True)
class DepthWidth(Experiment):
    """Figure 4; see `Experiment`.

    Args:
        layers: every number of graph layers; as in the figure, the output layer counts.
        widths: every hidden width.
    """

    layers: tuple[int, ...] = (2, 3, 4, 5)
    widths: tuple[int, ...] = (16, 64, 256, 1024)

    name = "depth-width"
    title = "Figure 4: depth and width on one device"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 200, "layers": (2, 3, 4), "widths": (16, 64, 256)},
        "full": {"datasets": ("cora", "citeseer", "pubmed", "ogbn-arxiv"), "seeds": 5, "epochs": 400},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Train every depth and width."""

        def run_of(dataset: str, layers: int, width: int) -> RunConfig:
            return small_run(self, dataset, (width,) * (layers - 1), 1, STEPS_BETWEEN_SCORES)

        grid = Grid.train(self, store, jobs, self.layers, self.widths, run_of)
        return Outcome(
            ["data set", "layers", *(f"d = {d}" for d in self.widths)],
            [row for dataset in self.datasets for row in grid.rows(dataset)],
            self._note(),
            [verdict for dataset in self.datasets for verdict in self._verdicts(dataset, grid)],
            [grid.chart(dataset, "Accuracy by width", "hidden width", "{} layers") for dataset in self.datasets],
        )

    def _verdicts(self, dataset: str, grid: Grid) -> list[Verdict]:
        ends = min(self.widths), max(self.widths)
        narrow, wide = (statistics.fmean(grid.mean(dataset, L, d) for L in self.layers) for d in ends)
        best = {L: max(grid.mean(dataset, L, d) for d in self.widths) for L in self.layers}
        return [
            Verdict(
                f"{dataset}: wider models score higher",
                wide > narrow if len(set(ends)) > 1 else None,
                f"mean over depths: d = {ends[0]} {narrow:.2f}, d = {ends[1]} {wide:.2f}",
            ),
            Verdict(
                f"{dataset}: deeper models are no better",
                best[max(best)] <= best[min(best)] if len(best) > 1 else None,
                "best width of each: " + ", ".join(f"{L} layers {score:.2f}" for L, score in best.items()),
            ),
        ]

    def _note(self) -> str:
        return (
            f"Test accuracy in percent at the best validation score, mean ± standard deviation over {self.seeds} "
            f"seeds. GCNs trained on one device for {self.epochs} epochs: full batch, Adam at 0.01 with weight decay "
            f"5e-4 and a step schedule, dropout {DROPOUT:g} on hidden features. Layers include the output layer. The "
            "paper shows curves and gives no numbers; its text gives neither learning rates nor dropout."
        )
