"""What Figures 4 and 5 share: full-batch GCNs on small graphs, as in Table 1, over a grid of two settings.

The paper does not give the learning rate and weight decay. 0.01 and 5e-4 on one device, 0.05 and 0 for sub-GCNs are
what the search for Table 1 on Cora chooses most often.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gistgnn.compare.comparison import by_seeds, score_of, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.paper.experiment import Chart, Experiment, Series
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.utils.formats import mean_sd

DROPOUT = 0.5


@dataclass(frozen=True)
class Grid:
    """Scores on every data set, for every value of one setting (lines of a chart) and of another (points of a line).

    Args:
        lines: the values of the first setting.
        points: the values of the second setting.
        scores: test scores of all seeds, in percent, by data set, line and point.
    """

    lines: Sequence[int]
    points: Sequence[int]
    scores: dict[tuple[str, int, int], list[float]]

    @classmethod
    def train(
        cls,
        figure: Experiment,
        store: RunStore,
        jobs: int,
        lines: Sequence[int],
        points: Sequence[int],
        run_of: Callable[[str, int, int], RunConfig],
    ) -> Grid:
        """Train the runs that are missing; `run_of` returns the run of a data set, a line and a point."""
        cells = [(dataset, line, point) for dataset in figure.datasets for line in lines for point in points]
        configs = with_seeds((run_of(*cell) for cell in cells), figure.seeds)
        records = by_seeds(store.run_all(configs, jobs, figure.name), figure.seeds)
        scores = {cell: list(map(score_of, seeds)) for cell, seeds in zip(cells, records, strict=True)}
        return cls(lines, points, scores)

    def mean(self, dataset: str, line: int, point: int) -> float:
        """Return the mean score over seeds, in percent."""
        return statistics.fmean(self.scores[dataset, line, point])

    def rows(self, dataset: str) -> list[list[str]]:
        """Return the rows of a table with one row for each line."""
        return [
            [dataset, str(line), *(mean_sd(self.scores[dataset, line, point]) for point in self.points)]
            for line in self.lines
        ]

    def chart(self, dataset: str, title: str, xlabel: str, label: str) -> Chart:
        """Return a chart; `label` is the format of a line's value."""
        series = [
            Series(label.format(line), self.points, [self.mean(dataset, line, point) for point in self.points])
            for line in self.lines
        ]
        return Chart(f"{title}, {dataset}", xlabel, "test accuracy (%)", series, logx=True)


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
    alone = sub_gcns == 1
    return RunConfig(
        dataset=dataset,
        model=ModelConfig("gcn", hidden, dropout=DROPOUT),
        sub_gcns=sub_gcns,
        device=experiment.device,
        training=Training(
            experiment.epochs,
            local_steps,
            training="each",
            lr=(0.01 if alone else 0.05) if lr is None else lr,
            weight_decay=(5e-4 if alone else 0.0) if weight_decay is None else weight_decay,
            schedule="step",
        ),
    )
