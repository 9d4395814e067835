"""Figures 4 and 5 (appendix A.2): GCNs on small graphs, over a grid of two settings; and their runs, as in Table 1.

The paper does not give the learning rate and weight decay. 0.01 and 5e-4 on one device, 0.05 and 0 for sub-GCNs are
what the search for Table 1 on Cora chooses most often.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.compare.comparison import by_seeds, score_of, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.utils.formats import mean_sd

DROPOUT = 0.5
DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")
STEPS_BETWEEN_SCORES = 20
ROBUST = 3.0  # points between the best and the worst ζ

Means = Mapping[tuple[str, int, int], float]  # scores in percent, by data set, line and point


def small_run(
    experiment: Experiment,
    dataset: str,
    hidden: tuple[int, ...],
    sub_gcns: int,
    local_steps: int,
    lr: float | None = None,
    weight_decay: float | None = None,
) -> RunConfig:
    """Return a run on a small graph; every sub-GCN gets all epochs. None: the rates above."""
    usual_lr, usual_decay = (0.01, 5e-4) if sub_gcns == 1 else (0.05, 0.0)
    training = Training(
        experiment.epochs,
        local_steps,
        training="each",
        lr=usual_lr if lr is None else lr,
        weight_decay=usual_decay if weight_decay is None else weight_decay,
        schedule="step",
    )
    model = ModelConfig("gcn", hidden, dropout=DROPOUT)
    return RunConfig(dataset, model, sub_gcns, device=experiment.device, training=training)


@dataclass(frozen=True)
class GridFigure(Experiment):
    """A figure of scores over one setting, a line for every value of another; see `Experiment`.

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
    def _run_of(self, dataset: str, line: int, point: int) -> RunConfig: ...

    @abstractmethod
    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]: ...

    @abstractmethod
    def _settings(self) -> str:
        """Say how the models were trained."""

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """See `Experiment`."""
        lines, points = self._axes()
        cells = [(dataset, line, point) for dataset in self.datasets for line in lines for point in points]
        configs = with_seeds((self._run_of(*cell) for cell in cells), self.seeds)
        records = by_seeds(store.run_all(configs, jobs, self.name), self.seeds)
        scores = {cell: list(map(score_of, seeds)) for cell, seeds in zip(cells, records, strict=True)}
        means = {cell: statistics.fmean(values) for cell, values in scores.items()}
        rows, charts = [], []
        for dataset in self.datasets:
            rows += [[dataset, str(x), *(mean_sd(scores[dataset, x, point]) for point in points)] for x in lines]
            series = [
                Series(self.line[1].format(line), points, [means[dataset, line, point] for point in points])
                for line in lines
            ]
            title, xlabel = self.chart
            charts.append(Chart(f"{title}, {dataset}", xlabel, "test accuracy (%)", series, logx=True))
        return Outcome(
            ["data set", self.line[0], *map(self.point.format, points)],
            rows,
            "Test accuracy in percent at the best validation score, mean ± standard deviation over "
            f"{self.seeds} seeds. {self._settings()} The paper shows curves and gives no numbers; its text gives "
            "neither learning rates nor dropout.",
            [verdict for dataset in self.datasets for verdict in self._verdicts(dataset, means)],
            charts,
        )


@dataclass(frozen=True)
class DepthWidth(GridFigure):
    """Figure 4: models of several depths and widths, trained on one device. The output layer counts in `layers`."""

    layers: tuple[int, ...] = (2, 3, 4, 5)
    widths: tuple[int, ...] = (16, 64, 256, 1024)

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

    def _run_of(self, dataset: str, line: int, point: int) -> RunConfig:
        return small_run(self, dataset, (point,) * (line - 1), 1, STEPS_BETWEEN_SCORES)

    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        ends = min(self.widths), max(self.widths)
        narrow, wide = (statistics.fmean(means[dataset, L, d] for L in self.layers) for d in ends)
        best = {L: max(means[dataset, L, d] for d in self.widths) for L in self.layers}
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

    def _settings(self) -> str:
        return (
            f"GCNs trained on one device for {self.epochs} epochs: full batch, Adam at 0.01 with weight decay 5e-4 "
            f"and a step schedule, dropout {DROPOUT:g} on hidden features. Layers include the output layer."
        )


@dataclass(frozen=True)
class LocalIterations(GridFigure):
    """Figure 5: how often sub-GCNs are merged: a GCN 256-256, with every ζ and m. Every sub-GCN gets all epochs."""

    local_steps: tuple[int, ...] = (1, 5, 10, 20, 50, 100)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    name = "local-iterations"
    title = "Figure 5: local iterations"
    line, point = ("m", "m = {}"), "ζ = {}"
    chart = ("Accuracy by ζ", "ζ, local steps")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400, "local_steps": (5, 20, 100)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _axes(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.sub_gcns, self.local_steps

    def _run_of(self, dataset: str, line: int, point: int) -> RunConfig:
        return small_run(self, dataset, (256, 256), line, point)

    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        verdicts = []
        for m in self.sub_gcns:
            scores = [means[dataset, m, zeta] for zeta in self.local_steps]
            low, high = min(scores), max(scores)
            claim = f"{dataset}, m = {m}: accuracy hardly depends on ζ (at most {ROBUST:g} points)"
            holds = high - low <= ROBUST if len(scores) > 1 else None
            verdicts.append(Verdict(claim, holds, f"{low:.2f} to {high:.2f}"))
        return verdicts

    def _settings(self) -> str:
        return (
            f"A GCN with hidden layers of 256 and 256, {self.epochs} epochs for every sub-GCN: full batch, Adam at "
            f"0.05 without weight decay, a step schedule, dropout {DROPOUT:g} on hidden features. Scores are taken "
            "after every round, so a small ζ has more scores to choose from."
        )
