"""Figures 4 and 5 (appendix A.3): depth and width of GCNs on one device, and how often sub-GCNs are merged.

The paper does not give learning rates. As in the authors' sweeps, every cell of a figure trains with several.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

from gistgnn.compare.comparison import by_seeds, score_of, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.processes import Record
from gistgnn.paper.experiment import Curve, CurveChart, Experiment, Outcome, Verdict
from gistgnn.paper.small_graphs import DROPOUT, WEIGHT_DECAY, epochs_of, labelled, listed, small_run, validation_of
from gistgnn.runs.config import RunConfig
from gistgnn.utils.formats import mean_sd, plural

RATES = {"small": (0.01, 0.05, 0.1), "full": (0.005, 0.01, 0.05, 0.1)}  # "full": the authors' sweeps
DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")
STEPS_BETWEEN_SCORES = 20  # of Figure 4
ROBUST = 3.0  # points between the best and the worst ζ

Cell = tuple[str, int, int]  # a data set, a line and a point
Means = Mapping[Cell, float]  # scores in percent


@dataclass(frozen=True)
class GridFigure(Experiment):
    """A figure of scores over one setting, a line for every value of another; see `Experiment`.

    Every learning rate of `RATES` trains with every seed. A cell shows the rate with the best mean validation score.

    Attributes:
        line: names of the lines' setting in the table and, as a format, in the chart.
        point: format of a column of the table.
        chart: title and label of the horizontal axis.
    """

    line: ClassVar[tuple[str, str]]
    point: ClassVar[str]
    chart: ClassVar[tuple[str, str]]

    @abstractmethod
    def _axes(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the values of the lines, and of the points of a line."""

    @abstractmethod
    def _run_of(self, dataset: str, line: int, point: int, lr: float) -> RunConfig: ...

    @abstractmethod
    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]: ...

    @abstractmethod
    def _settings(self) -> str:
        """Say how the models were trained."""

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """See `Experiment`."""
        lines, points = self._axes()
        cells = list(product(self.datasets, lines, points))
        chosen = self._choose(store, cells, jobs)
        scores = {cell: list(map(score_of, records)) for cell, (_, records) in chosen.items()}
        means = {cell: statistics.fmean(values) for cell, values in scores.items()}
        shown = {cell: f"{mean_sd(scores[cell])} ({lr:g})" for cell, (lr, _) in chosen.items()}
        rows, charts = [], []
        for dataset in self.datasets:
            rows += [[dataset, str(x), *(shown[dataset, x, point] for point in points)] for x in lines]
            series = [
                Curve(self.line[1].format(line), points, [means[dataset, line, point] for point in points])
                for line in lines
            ]
            title, xlabel = self.chart
            charts.append(CurveChart(f"{title}, {dataset}", xlabel, "test accuracy (%)", series, logx=True))
        return Outcome(
            ["data set", self.line[0], *map(self.point.format, points)],
            rows,
            "Test accuracy in percent at the best validation score, mean ± standard deviation over "
            f"{plural(self.seeds, 'seed')}. {self._settings()} Each cell chooses its learning rate, in brackets, from "
            f"{listed(RATES[self.scale])} by the mean validation accuracy of these seeds. Adam with weight decay "
            f"{WEIGHT_DECAY:g}, a step schedule, full batch, dropout {DROPOUT:g} on hidden features. The paper shows "
            "curves and gives no numbers; its text gives neither learning rates nor dropout.",
            [verdict for dataset in self.datasets for verdict in self._verdicts(dataset, means)],
            charts,
        )

    def _choose(self, store: RunStore, cells: Sequence[Cell], jobs: int) -> dict[Cell, tuple[float, list[Record]]]:
        """Train every cell with every rate; return the best rate of each cell, and its records by seed."""
        rates = RATES[self.scale]
        configs = with_seeds((self._run_of(*cell, lr) for cell in cells for lr in rates), self.seeds)
        groups = iter(by_seeds(store.run_all(configs, jobs, self.name), self.seeds))
        tried = {cell: {lr: next(groups) for lr in rates} for cell in cells}
        return {cell: max(found.items(), key=lambda pair: validation_of(pair[1])) for cell, found in tried.items()}


@dataclass(frozen=True)
class DepthWidth(GridFigure):
    """Figure 4: models of several depths and widths, trained on one device. The output layer counts in `layers`."""

    layers: tuple[int, ...] = (2, 3, 4, 5, 7, 9)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)

    name = "depth-width"
    title = "Figure 4: depth and width on one device"
    line, point = ("layers", "{} layers"), "d = {}"
    chart = ("Accuracy by width", "hidden width")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 200, "layers": (2, 3, 4), "widths": (16, 64, 256)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _axes(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.layers, self.widths

    def _run_of(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(self, dataset, (point,) * (line - 1), 1, STEPS_BETWEEN_SCORES, lr)

    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        ends = min(self.widths), max(self.widths)
        narrow, wide = (statistics.fmean(means[dataset, L, d] for L in self.layers) for d in ends)
        best = {L: max(means[dataset, L, d] for d in self.widths) for L in self.layers}
        fewest, each = min(best), ", ".join(f"{L} layers {score:.2f}" for L, score in best.items())
        return [
            Verdict(
                f"{dataset}: wider models score higher",
                wide > narrow if len(set(ends)) > 1 else None,
                f"mean over depths: d = {ends[0]} {narrow:.2f}, d = {ends[1]} {wide:.2f}",
            ),
            Verdict(
                f"{dataset}: deeper models are no better",
                best[max(best)] <= best[fewest] if len(best) > 1 else None,
                f"best width of each: {each}",
            ),
            Verdict(
                f"{dataset}: two layers perform best",
                best[fewest] == max(best.values()) if fewest == 2 and len(best) > 1 else None,
                f"best width of each: {each}",
            ),
        ]

    def _settings(self) -> str:
        return f"GCNs trained on one device for {self.epochs} epochs. Layers include the output layer."


@dataclass(frozen=True)
class LocalIterations(GridFigure):
    """Figure 5: how often sub-GCNs are merged: a GCN 256-256, with every ζ and m.

    Args:
        training: as in `Table1`.
    """

    training: Literal["split", "each"] = "split"
    local_steps: tuple[int, ...] = (1, 5, 10, 20, 35, 50)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    name = "local-iterations"
    title = "Figure 5: local iterations"
    line, point = ("m", "m = {}"), "ζ = {}"
    chart = ("Accuracy by ζ", "ζ, local steps")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400, "local_steps": (5, 20, 50)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _axes(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.sub_gcns, self.local_steps

    def _run_of(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(self, dataset, (256, 256), line, point, lr, training=self.training)

    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        verdicts = []
        for m in self.sub_gcns:
            scores = [means[dataset, m, zeta] for zeta in self.local_steps]
            low, high = min(scores), max(scores)
            claim = f"{dataset}, m = {m}: accuracy hardly depends on ζ (at most {ROBUST:g} points)"
            holds = high - low <= ROBUST if len(scores) > 1 else None
            verdicts.append(Verdict(claim, holds, f"{low:.2f} to {high:.2f}"))
        return labelled([*verdicts, self._falls_slightly(dataset, means)], self.training)

    def _falls_slightly(self, dataset: str, means: Means) -> Verdict:
        """Judge "test accuracy decreases slightly as ζ increases" (appendix A.3)."""
        ends = min(self.local_steps), max(self.local_steps)
        few, many = (statistics.fmean(means[dataset, m, zeta] for m in self.sub_gcns) for zeta in ends)
        return Verdict(
            f"{dataset}: accuracy falls slightly as ζ grows (by at most {ROBUST:g} points)",
            0 < few - many <= ROBUST if len(set(ends)) > 1 else None,
            f"mean over m: ζ = {ends[0]} {few:.2f}, ζ = {ends[1]} {many:.2f}",
        )

    def _settings(self) -> str:
        return (
            f"A GCN with hidden layers of 256 and 256, {epochs_of(self.epochs, self.training)}. Scores are taken after "
            "every round, so a small ζ has more scores to choose from."
        )
