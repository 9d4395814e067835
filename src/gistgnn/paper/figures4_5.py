"""Figures 4 and 5 (appendix A.3): depth and width of GCNs on one device, and how often sub-GCNs are merged.

The paper does not give learning rates. As in the authors' sweeps, every cell of a figure trains with several.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

from gistgnn.compare import RunStore, score_of
from gistgnn.paper.experiment import Curve, CurveChart, Experiment, Outcome, Verdict
from gistgnn.paper.small_graphs import (
    DROPOUT,
    WEIGHT_DECAY,
    epochs_of,
    labelled,
    listed,
    small_run,
    train_all,
    validation_of,
)
from gistgnn.runs import RunConfig
from gistgnn.utils import mean_sd, plural

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
        axes: the settings of the lines, and of the points of a line.
        line: names of the lines' setting in the table and, as a format, in the chart.
        point: format of a column of the table.
        chart: title and label of the horizontal axis.
    """

    axes: ClassVar[tuple[str, str]]
    line: ClassVar[tuple[str, str]]
    point: ClassVar[str]
    chart: ClassVar[tuple[str, str]]

    @abstractmethod
    def _config(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        """Return the run of a cell with one learning rate."""

    @abstractmethod
    def verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        """Judge the paper's claims for one data set."""

    @abstractmethod
    def _settings(self) -> str:
        """Say how the models were trained."""

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """See `Experiment`."""
        lines, points = (getattr(self, axis) for axis in self.axes)
        cells, rates = list(product(self.datasets, lines, points)), RATES[self.scale]
        runs = {(cell, lr): self._config(*cell, lr) for cell in cells for lr in rates}
        trained = train_all(store, runs, range(self.seeds), jobs, self.name)
        best = {cell: max(rates, key=lambda lr: validation_of(trained[cell, lr])) for cell in cells}
        scores = {cell: list(map(score_of, trained[cell, lr])) for cell, lr in best.items()}
        means = {cell: statistics.fmean(values) for cell, values in scores.items()}
        shown = {cell: f"{mean_sd(scores[cell])} ({lr:g})" for cell, lr in best.items()}
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
            f"{listed(rates)} by the mean validation accuracy of these seeds. Adam with weight decay "
            f"{WEIGHT_DECAY:g}, a step schedule, full batch, dropout {DROPOUT:g} on hidden features. The paper shows "
            "curves and gives no numbers; its text gives neither learning rates nor dropout.",
            [verdict for dataset in self.datasets for verdict in self.verdicts(dataset, means)],
            charts,
        )


@dataclass(frozen=True)
class DepthWidth(GridFigure):
    """Figure 4: models of several depths and widths, trained on one device. The output layer counts in `layers`."""

    layers: tuple[int, ...] = (2, 3, 4, 5, 7, 9)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)

    name = "depth-width"
    title = "Figure 4: depth and width on one device"
    axes, line, point = ("layers", "widths"), ("layers", "{} layers"), "d = {}"
    chart = ("Accuracy by width", "hidden width")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 200, "layers": (2, 3, 4), "widths": (16, 64, 256)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _config(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(self, dataset, (point,) * (line - 1), 1, STEPS_BETWEEN_SCORES, lr)

    def verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        """See `GridFigure`."""
        ends = min(self.widths), max(self.widths)
        narrow, wide = (statistics.fmean(means[dataset, L, d] for L in self.layers) for d in ends)
        best = {L: max(means[dataset, L, d] for d in self.widths) for L in self.layers}
        fewest, several = min(best), len(best) > 1
        widths = f"mean over depths: d = {ends[0]} {narrow:.2f}, d = {ends[1]} {wide:.2f}"
        depths = "best width of each: " + ", ".join(f"{L} layers {score:.2f}" for L, score in best.items())
        wider = wide > narrow if len(set(ends)) > 1 else None
        deeper = best[max(best)] <= best[fewest] if several else None
        two = best[fewest] == max(best.values()) if fewest == 2 and several else None
        return [
            Verdict(f"{dataset}: wider models score higher", wider, widths),
            Verdict(f"{dataset}: deeper models are no better", deeper, depths),
            Verdict(f"{dataset}: two layers perform best", two, depths),
        ]

    def _settings(self) -> str:
        return f"GCNs trained on one device for {self.epochs} epochs. Layers include the output layer."


@dataclass(frozen=True)
class LocalIterations(GridFigure):
    """Figure 5: how often sub-GCNs are merged: a GCN 256-256, with every ζ and m. `training` is as in `Table1`."""

    training: Literal["split", "each"] = "split"
    local_steps: tuple[int, ...] = (1, 5, 10, 20, 35, 50)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    name = "local-iterations"
    title = "Figure 5: local iterations"
    axes, line, point = ("sub_gcns", "local_steps"), ("m", "m = {}"), "ζ = {}"
    chart = ("Accuracy by ζ", "ζ, local steps")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400, "local_steps": (5, 20, 50)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _config(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(self, dataset, (256, 256), line, point, lr, training=self.training)

    def verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        """See `GridFigure`; "test accuracy decreases slightly as ζ increases" (appendix A.3)."""
        ends = min(self.local_steps), max(self.local_steps)
        several, verdicts = ends[0] < ends[1], []
        for m in self.sub_gcns:
            scores = [means[dataset, m, zeta] for zeta in self.local_steps]
            low, high = min(scores), max(scores)
            claim = f"{dataset}, m = {m}: accuracy hardly depends on ζ (at most {ROBUST:g} points)"
            verdicts.append(Verdict(claim, high - low <= ROBUST if several else None, f"{low:.2f} to {high:.2f}"))
        few, many = (statistics.fmean(means[dataset, m, zeta] for m in self.sub_gcns) for zeta in ends)
        falls = Verdict(
            f"{dataset}: accuracy falls slightly as ζ grows (by at most {ROBUST:g} points)",
            0 < few - many <= ROBUST if several else None,
            f"mean over m: ζ = {ends[0]} {few:.2f}, ζ = {ends[1]} {many:.2f}",
        )
        return labelled([*verdicts, falls], self.training)

    def _settings(self) -> str:
        return (
            f"A GCN with hidden layers of 256 and 256, {epochs_of(self.epochs, self.training)}. Scores are taken after "
            "every round, so a small ζ has more scores to choose from."
        )
