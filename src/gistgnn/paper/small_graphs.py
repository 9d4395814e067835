"""Figures 4 and 5 (appendix A.3): full-batch GCNs on small graphs.

Table 1 shares this module's functions.

The paper gives no learning rates. Every cell trains with several, and shows the best one by
validation accuracy.
"""

import statistics
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, TypeVar

from gistgnn import Training
from gistgnn.compare import Record, RunStore, by_seeds, score_of
from gistgnn.paper.experiment import Experiment, Table
from gistgnn.report import Chart, Series
from gistgnn.runs import ModelConfig, RunConfig
from gistgnn.utils import mean_sd, plural

DROPOUT = 0.5
WEIGHT_DECAY = 5e-4  # of the authors' sweeps
# At the scale "full" the rates are those of the authors' sweeps.
RATES = {"small": (0.01, 0.05, 0.1), "full": (0.005, 0.01, 0.05, 0.1)}
DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")
STEPS_BETWEEN_SCORES = 20  # of Figure 4

Key = TypeVar("Key", bound=Hashable)
Candidate = TypeVar("Candidate")


def small_training(
    epochs: int, local_steps: int, lr: float, weight_decay: float = WEIGHT_DECAY
) -> Training:
    """Return how models on small graphs are trained.

    They are scored after every round, and the epochs are split (section 2.2).
    """
    return Training(
        epochs,
        local_steps,
        training="split",
        evaluate_every=1,
        lr=lr,
        weight_decay=weight_decay,
        schedule="step",
        optimizer_state="reset",
    )


def small_run(
    dataset: str, hidden: tuple[int, ...], sub_gcns: int, training: Training, device: str
) -> RunConfig:
    """Return a run of a GCN on a small graph."""
    model = ModelConfig("gcn", hidden, dropout=DROPOUT)
    plain: dict[str, Any] = {"standardise": False, "width_scaling": "none"}
    return RunConfig(dataset, model, sub_gcns, device=device, training=training, **plain)


def train_all(
    store: RunStore, runs: Mapping[Key, RunConfig], seeds: Iterable[int], label: str
) -> dict[Key, list[Record]]:
    """Train every run with every seed, and return its records by seed."""
    seeds = list(seeds)
    records = store.run_all(
        [replace(run, seed=seed) for run in runs.values() for seed in seeds], label
    )
    return dict(zip(runs, by_seeds(records, len(seeds)), strict=True))


def ranked(trained: Mapping[tuple[Key, Candidate], Sequence[Record]]) -> dict[Key, list[Candidate]]:
    """Return the candidates of every cell, the best mean validation accuracy first."""
    accuracies = {pair: validation_of(records) for pair, records in trained.items()}
    candidates: dict[Key, list[Candidate]] = {}
    for cell, candidate in sorted(accuracies, key=accuracies.__getitem__, reverse=True):
        candidates.setdefault(cell, []).append(candidate)
    return candidates


def validation_of(records: Sequence[Record]) -> float:
    """Return the mean of the best validation accuracies.

    A run that diverged before its first score counts as 0.
    """
    return statistics.fmean(record.validation.get("accuracy") or 0.0 for record in records)


def listed(values: Iterable[float]) -> str:
    """Format distinct numbers as a set."""
    return "{" + ", ".join(f"{value:g}" for value in sorted(set(values))) + "}"


class GridFigure(Experiment):
    """A figure of scores over one setting, with a line for every value of another.

    Every rate of `RATES` is tried.
    """

    axes: ClassVar[tuple[str, str]]  # the settings of the lines, and of the points of a line
    # The names of the lines' setting in the table and, as a format, in the chart.
    line: ClassVar[tuple[str, str]]
    point: ClassVar[str]  # format of a column of the table
    chart: ClassVar[tuple[str, str]]  # title and label of the horizontal axis
    settings: ClassVar[str]  # of the note: how the models were trained, with {epochs}

    @abstractmethod
    def config(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        """Return the run of a cell with one learning rate."""

    def run(self, store: RunStore) -> list[Table]:
        lines = getattr(self, self.axes[0])
        points = getattr(self, self.axes[1])
        cells = list(product(self.datasets, lines, points))
        rates = RATES[self.scale]
        runs = {(cell, lr): self.config(*cell, lr) for cell in cells for lr in rates}
        trained = train_all(store, runs, range(self.seeds), self.name)
        best = {cell: lr for cell, (lr, *_) in ranked(trained).items()}
        scores = {
            cell: [score_of(record) for record in trained[cell, best[cell]]] for cell in cells
        }
        rows = []
        charts = []
        title, xlabel = self.chart
        for dataset in self.datasets:
            series = []
            for line in lines:
                of_line = [(dataset, line, point) for point in points]
                shown = [f"{mean_sd(scores[cell])} ({best[cell]:g})" for cell in of_line]
                rows.append([dataset, str(line), *shown])
                means = [statistics.fmean(scores[cell]) for cell in of_line]
                series.append(Series(self.line[1].format(line), points, means))
            charts.append(
                Chart(f"{title}, {dataset}", xlabel, "test accuracy (%)", series, log_x=True)
            )
        columns = ["data set", self.line[0], *map(self.point.format, points)]
        return [Table(columns, rows, self._note(), charts)]

    def _note(self) -> str:
        return (
            "Test accuracy in percent at the best validation score, mean ± standard deviation over "
            f"{plural(self.seeds, 'seed')}. {self.settings.format(epochs=self.epochs)} Each cell "
            f"chooses its learning rate, in brackets, from {listed(RATES[self.scale])} by the mean "
            f"validation accuracy of these seeds. Adam with weight decay {WEIGHT_DECAY:g}, a step "
            f"schedule, dropout {DROPOUT:g}. The paper shows curves; its text gives neither "
            "learning rates nor dropout."
        )


@dataclass(frozen=True)
class DepthWidth(GridFigure):
    """Figure 4: models of several depths and widths, trained on one device.

    The output layer counts in `layers`.
    """

    layers: tuple[int, ...] = (2, 3, 4, 5, 7, 9)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)

    axes = ("layers", "widths")
    line = ("layers", "{} layers")
    point = "d = {}"
    chart = ("Accuracy by width", "hidden width")
    settings = "GCNs trained on one device for {epochs} epochs. Layers include the output layer."
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {
            "datasets": ("cora",),
            "seeds": 2,
            "epochs": 200,
            "layers": (2, 3, 4),
            "widths": (16, 64, 256),
        },
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def config(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        training = small_training(self.epochs, STEPS_BETWEEN_SCORES, lr)
        return small_run(dataset, (point,) * (line - 1), 1, training, self.device)


@dataclass(frozen=True)
class LocalIterations(GridFigure):
    """Figure 5: how often sub-GCNs are merged: a GCN 256-256, with every ζ and m."""

    # The values of the authors' sweep, and 100, which A.3 chooses.
    local_steps: tuple[int, ...] = (1, 5, 10, 20, 35, 50, 100)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    axes = ("sub_gcns", "local_steps")
    line = ("m", "m = {}")
    point = "ζ = {}"
    chart = ("Accuracy by ζ", "ζ, local steps")
    settings = (
        "A GCN with hidden layers of 256 and 256, {epochs} epochs, split over the sub-GCNs "
        "(section 2.2). Scores are "
        "taken after every round, so a small ζ has more scores to choose from."
    )
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 1, "epochs": 400},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def config(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(
            dataset, (256, 256), line, small_training(self.epochs, point, lr), self.device
        )
