"""GCNs on small graphs: the runs of Table 1, and the form of Figures 4 and 5 (appendix A.3).

The paper does not give the learning rate and weight decay. 0.01 and 5e-4 on one device, 0.05 and 0 for sub-GCNs are
what the search for Table 1 on Cora chooses most often.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gistgnn.compare.comparison import by_seeds, score_of, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.utils.formats import mean_sd

DROPOUT = 0.5
DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")

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
