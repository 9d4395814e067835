"""Figure 4: one device, GCNs of several depths and widths on small graphs (appendix A.2)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.paper.small_graphs import DROPOUT, scores_of, small_run
from gistgnn.utils.formats import mean_sd

EVALUATED = 20  # steps between two scores


@dataclass(frozen=True)
class DepthWidth(Experiment):
    """Figure 4; see `Experiment`.

    Args:
        layers: every number of graph layers, the output layer included, as the figure counts them.
        widths: every hidden width.
    """

    layers: tuple[int, ...] = (2, 3, 4, 5)
    widths: tuple[int, ...] = (16, 64, 256, 1024)

    name: ClassVar[str] = "depth-width"
    title: ClassVar[str] = "Figure 4: depth and width on one device"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 200, "layers": (2, 3, 4), "widths": (16, 64, 256)},
        "full": {"datasets": ("cora", "citeseer", "pubmed", "ogbn-arxiv"), "seeds": 5, "epochs": 400},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Run every depth and width."""
        cells = [(dataset, L, d) for dataset in self.datasets for L in self.layers for d in self.widths]
        wanted = [
            small_run(dataset, (d,) * (layers - 1), 1, self.epochs, EVALUATED, seed, self.device)
            for dataset, layers, d in cells
            for seed in range(self.seeds)
        ]
        records = iter(store.run_all(wanted, jobs, self.name))
        found = {cell: scores_of([next(records) for _ in range(self.seeds)]) for cell in cells}
        mean = {cell: statistics.fmean(scores) for cell, scores in found.items()}
        rows = [
            [dataset, str(layers), *(mean_sd(found[dataset, layers, d]) for d in self.widths)]
            for dataset in self.datasets
            for layers in self.layers
        ]
        columns = ["data set", "layers", *(f"d = {d}" for d in self.widths)]
        verdicts = [verdict for dataset in self.datasets for verdict in self._verdicts(dataset, mean)]
        charts = [self._chart(dataset, mean) for dataset in self.datasets]
        return Outcome(columns, rows, self._note(), verdicts, charts)

    def _verdicts(self, dataset: str, mean: dict[tuple[str, int, int], float]) -> list[Verdict]:
        ends = min(self.widths), max(self.widths)
        narrow, wide = (statistics.fmean(mean[dataset, L, d] for L in self.layers) for d in ends)
        by_depth = {L: max(mean[dataset, L, d] for d in self.widths) for L in self.layers}
        deepest = max(by_depth)
        return [
            Verdict(
                f"{dataset}: wider models score higher",
                wide > narrow if len(set(ends)) > 1 else None,
                f"mean over depths: d = {ends[0]} {narrow:.2f}, d = {ends[1]} {wide:.2f}",
            ),
            Verdict(
                f"{dataset}: deeper models are no better",
                by_depth[deepest] <= by_depth[min(by_depth)] if len(by_depth) > 1 else None,
                "best width of each: " + ", ".join(f"{L} layers {score:.2f}" for L, score in by_depth.items()),
            ),
        ]

    def _chart(self, dataset: str, mean: dict[tuple[str, int, int], float]) -> Chart:
        series = [Series(f"{L} layers", self.widths, [mean[dataset, L, d] for d in self.widths]) for L in self.layers]
        return Chart(f"Accuracy by width, {dataset}", "hidden width", "test accuracy (%)", series, logx=True)

    def _note(self) -> str:
        return (
            f"Test accuracy in percent at the best validation score of GCNs trained on one device for {self.epochs} "
            f"epochs, full batch, Adam at 0.01 with weight decay 5e-4 and a step schedule, dropout {DROPOUT:g} on "
            f"hidden features, mean ± standard deviation over {self.seeds} seeds. Layers count the output layer. The "
            "paper has curves alone and gives no numbers; rates and dropout are not in its text."
        )
