"""Figures 4 and 5 (appendix A.3): full-batch GCNs on small graphs.

Table 1 shares this module's functions.

The paper gives no learning rates. Every cell trains with several, and shows the best one by
validation accuracy.
"""

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, TypeVar

from gistgnn import Training
from gistgnn.compare import Record, RunStore, by_seeds, score_of
from gistgnn.paper.experiment import Defaults, Experiment, Table
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


@dataclass(frozen=True)
class DepthWidth(Experiment):
    """Figure 4: models of several depths and widths, trained on one device.

    The output layer counts in `layers`.
    """

    layers: tuple[int, ...] = (2, 3, 4, 5, 7, 9)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)

    defaults: ClassVar[Defaults] = {
        "depth-width": {
            "small": {
                "datasets": ("cora",),
                "seeds": 2,
                "epochs": 200,
                "layers": (2, 3, 4),
                "widths": (16, 64, 256),
            },
            "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
        }
    }

    def run(self, store: RunStore) -> list[Table]:
        cells = list(product(self.datasets, self.layers, self.widths))
        runs = {(cell, lr): self.config(*cell, lr) for cell in cells for lr in RATES[self.scale]}
        scores = train_best_rates(runs, self.seeds, store, self.name)
        rows = []
        charts = []
        for dataset in self.datasets:
            series = []
            for layers in self.layers:
                line = [scores[dataset, layers, width] for width in self.widths]
                rows.append([dataset, str(layers), *map(_cell, line)])
                series.append(Series(f"{layers} layers", self.widths, _means(line)))
            charts.append(_chart(f"Accuracy by width, {dataset}", "hidden width", series))
        columns = ["data set", "layers", *(f"d = {width}" for width in self.widths)]
        settings = (
            f"GCNs trained on one device for {self.epochs} epochs. Layers include the output layer."
        )
        return [Table(columns, rows, _note(self, settings), charts)]

    def config(self, dataset: str, layers: int, width: int, lr: float) -> RunConfig:
        """Return the run of a cell with one learning rate."""
        training = small_training(self.epochs, STEPS_BETWEEN_SCORES, lr)
        return small_run(dataset, (width,) * (layers - 1), 1, training, self.device)


@dataclass(frozen=True)
class LocalIterations(Experiment):
    """Figure 5: how often sub-GCNs are merged: a GCN 256-256, with every ζ and m."""

    # The values of the authors' sweep, and 100, which A.3 chooses.
    local_steps: tuple[int, ...] = (1, 5, 10, 20, 35, 50, 100)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    defaults: ClassVar[Defaults] = {
        "local-iterations": {
            "small": {"datasets": ("cora",), "seeds": 1, "epochs": 400},
            "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
        }
    }

    def run(self, store: RunStore) -> list[Table]:
        cells = list(product(self.datasets, self.sub_gcns, self.local_steps))
        runs = {(cell, lr): self.config(*cell, lr) for cell in cells for lr in RATES[self.scale]}
        scores = train_best_rates(runs, self.seeds, store, self.name)
        rows = []
        charts = []
        for dataset in self.datasets:
            series = []
            for m in self.sub_gcns:
                line = [scores[dataset, m, zeta] for zeta in self.local_steps]
                rows.append([dataset, str(m), *map(_cell, line)])
                series.append(Series(f"m = {m}", self.local_steps, _means(line)))
            charts.append(_chart(f"Accuracy by ζ, {dataset}", "ζ, local steps", series))
        columns = ["data set", "m", *(f"ζ = {zeta}" for zeta in self.local_steps)]
        settings = (
            f"A GCN with hidden layers of 256 and 256, {self.epochs} epochs, split over the "
            "sub-GCNs (section 2.2). Scores are taken after every round, so a small ζ has more "
            "scores to choose from."
        )
        return [Table(columns, rows, _note(self, settings), charts)]

    def config(self, dataset: str, m: int, zeta: int, lr: float) -> RunConfig:
        """Return the run of a cell with one learning rate."""
        training = small_training(self.epochs, zeta, lr)
        return small_run(dataset, (256, 256), m, training, self.device)


# The best learning rate of a cell, and its runs' test scores in percent, by seed.
BestRate = tuple[float, list[float]]


def train_best_rates(
    runs: Mapping[tuple[Key, float], RunConfig], seeds: int, store: RunStore, label: str
) -> dict[Key, BestRate]:
    """Train every cell with every learning rate; return the best by validation accuracy.

    Args:
        runs: by cell and learning rate.
        seeds: how many, from 0 on.
        store: where finished runs are.
        label: of the progress bar.
    """
    trained = train_all(store, runs, range(seeds), label)
    best = {cell: rates[0] for cell, rates in ranked(trained).items()}
    return {
        cell: (lr, [score_of(record) for record in trained[cell, lr]]) for cell, lr in best.items()
    }


def _cell(best: BestRate) -> str:
    lr, scores = best
    return f"{mean_sd(scores)} ({lr:g})"


def _means(line: Sequence[BestRate]) -> list[float]:
    return [statistics.fmean(scores) for _, scores in line]


def _chart(title: str, xlabel: str, series: Sequence[Series]) -> Chart:
    return Chart(title, xlabel, "test accuracy (%)", series, log_x=True)


def _note(figure: Experiment, settings: str) -> str:
    """Return the note of a figure; `settings` says how the models were trained."""
    return (
        "Test accuracy in percent at the best validation score, mean ± standard deviation over "
        f"{plural(figure.seeds, 'seed')}. {settings} Each cell "
        f"chooses its learning rate, in brackets, from {listed(RATES[figure.scale])} by the mean "
        f"validation accuracy of these seeds. Adam with weight decay {WEIGHT_DECAY:g}, a step "
        f"schedule, dropout {DROPOUT:g}. The paper shows curves; its text gives neither "
        "learning rates nor dropout."
    )
