"""GCNs on small graphs (appendix A.3): what Table 1 and Figures 4 and 5 share."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from gistgnn.compare.processes import Record
from gistgnn.paper.experiment import Experiment, Verdict
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training

DROPOUT = 0.5
WEIGHT_DECAY = 5e-4  # of the authors' sweeps


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
