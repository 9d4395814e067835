"""GCNs on small graphs (appendix A.3): what Table 1 and Figures 4 and 5 share."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from gistgnn import Training
from gistgnn.compare import Record, RunStore, by_seeds
from gistgnn.paper.experiment import Experiment, Verdict
from gistgnn.runs import ModelConfig, RunConfig

DROPOUT = 0.5
WEIGHT_DECAY = 5e-4  # of the authors' sweeps
Key = TypeVar("Key", bound=Hashable)


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
        experiment.epochs, local_steps, training=training, lr=lr, weight_decay=weight_decay, schedule="step"
    )
    model = ModelConfig("gcn", hidden, dropout=DROPOUT)
    return RunConfig(dataset, model, sub_gcns, device=experiment.device, training=settings)


def train_all(
    store: RunStore, runs: Mapping[Key, RunConfig], seeds: Iterable[int], jobs: int, label: str
) -> dict[Key, list[Record]]:
    """Train every run with every seed, and return its records by seed."""
    seeds = list(seeds)
    records = store.run_all([replace(run, seed=seed) for run in runs.values() for seed in seeds], jobs, label)
    return dict(zip(runs, by_seeds(records, len(seeds)), strict=True))


def validation_of(records: Sequence[Record]) -> float:
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
