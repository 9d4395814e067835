"""GCNs on small graphs: the runs of Table 1, and the form of Figures 4 and 5 (appendix A.3).

The paper does not give learning rates. As in the authors' sweeps, every cell of a figure trains with several.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Literal

from gistgnn.compare.comparison import by_seeds, score_of, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.processes import Record
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.utils.formats import mean_sd, plural

DROPOUT = 0.5
WEIGHT_DECAY = 5e-4  # of the authors' sweeps
RATES = {"small": (0.01, 0.05, 0.1), "full": (0.005, 0.01, 0.05, 0.1)}  # "full": the authors' sweeps
DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")

Cell = tuple[str, int, int]  # a data set, a line and a point
Means = Mapping[Cell, float]  # scores in percent


def small_run(
    experiment: Experiment,
    dataset: str,
    hidden: tuple[int, ...],
    sub_gcns: int,
    local_steps: int,
    lr: float,
    weight_decay: float = WEIGHT_DECAY,
    training: Literal["split", "each"] = "split",
) -> RunConfig:
    """Return a run on a small graph."""
    settings = Training(
        experiment.epochs,
        local_steps,
        training=training,
        lr=lr,
        weight_decay=weight_decay,
        schedule="step",
    )
    model = ModelConfig("gcn", hidden, dropout=DROPOUT)
    return RunConfig(dataset, model, sub_gcns, device=experiment.device, training=settings)


def validation_of(records: Iterable[Record]) -> float:
    """Return the mean of the best validation accuracies; a run that diverged before its first score counts as 0."""
    return statistics.fmean(record["validation"]["accuracy"] if record["validation"] else 0.0 for record in records)


def epochs_of(epochs: int, training: str) -> str:
    """Say how many epochs a sub-GCN trains."""
    if training == "split":
        return f"{epochs} epochs, split over the sub-GCNs (section 2.2)"
    return f"{epochs} epochs for every sub-GCN, which is m times the work of the paper: an extra"


def labelled(verdicts: Iterable[Verdict], training: str) -> list[Verdict]:
    """Say of verdicts on runs that are not the paper's that they are not."""
    label = "" if training == "split" else "extra, all epochs for every sub-GCN: "
    return [replace(verdict, claim=label + verdict.claim) for verdict in verdicts]


def listed(values: Iterable[float]) -> str:
    """Format distinct numbers as a set."""
    return "{" + ", ".join(f"{value:g}" for value in sorted(set(values))) + "}"


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
                Series(self.line[1].format(line), points, [means[dataset, line, point] for point in points])
                for line in lines
            ]
            title, xlabel = self.chart
            charts.append(Chart(f"{title}, {dataset}", xlabel, "test accuracy (%)", series, logx=True))
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
