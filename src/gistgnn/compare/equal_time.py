"""Runs of different methods that train for the same time: epochs are measured, and chosen by it.

A learning rate that falls to zero at the end has to know the end. So the epochs are fixed before a
run, and it is not cut off.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from gistgnn.compare.many_runs import RunStore
from gistgnn.runs.config import RunConfig
from gistgnn.settings import Training
from gistgnn.storage.record import Record
from gistgnn.utils.checks import MOST

FIRST_EPOCHS = 2  # of every sub-GCN or worker, in the first measurement
SHARE = 0.1  # of the time, for each later measurement: short ones count what happens once
TIMINGS = (1001, 1002, 1003)  # seeds of the later measurements, of which the median counts


def runs_within(store: RunStore, configs: Sequence[RunConfig], seconds: float) -> list[RunConfig]:
    """Return runs that train for about the same time each, and one with a budget.

    An epoch of every run is measured by training, first for two epochs, then three times for a
    tenth of the time, the runs in turn. What was measured is kept in the store, so a command that
    is repeated has the same runs.

    Args:
        store: trains what is measured.
        configs: the runs, the baseline first; their epochs do not matter.
        seconds: how long each of them trains, without evaluation.

    Returns:
        The runs in order, with the epochs that they have time for, and last the full model with a
        budget of as many seconds, which includes the trials and the evaluation.
    """
    first = [float(FIRST_EPOCHS * _workers_of(config)) for config in configs]
    epoch_seconds = _measured(store, configs, first, 1, "measuring two epochs")
    longer = [
        max(SHARE * seconds / one, epochs) for one, epochs in zip(epoch_seconds, first, strict=True)
    ]
    epoch_seconds = _measured(store, configs, longer, len(TIMINGS), "measuring more epochs")
    possible = [seconds / one for one in epoch_seconds]
    return [*map(with_epochs, configs, possible), _with_budget(configs[0], seconds)]


def with_epochs(config: RunConfig, epochs: float) -> RunConfig:
    """Return the same run with other epochs, of which three digits are kept."""
    rounded = min(max(float(f"{epochs:.3g}"), 1e-3), MOST)
    return replace(config, training=replace(config.training, epochs=rounded))


def _measured(
    store: RunStore, configs: Sequence[RunConfig], epochs: Sequence[float], times: int, label: str
) -> list[float]:
    """Return the seconds of an epoch of every run, the median of some trainings of some epochs."""
    timed = []
    for config, count in zip(configs, epochs, strict=True):
        training = replace(config.training, evaluate_every=MOST, patience=None)
        same = with_epochs(replace(config, training=training), count)
        timed += [replace(same, seed=seed) for seed in TIMINGS[:times]]
    records = store.run_all(timed, label)
    return [
        statistics.median(map(_epoch_seconds, records[start : start + times]))
        for start in range(0, len(records), times)
    ]


def _epoch_seconds(record: Record) -> float:
    """Return the seconds of training of an epoch; of a run that diverged, of those it had."""
    epochs = float(record.per_round[-1]["epoch"] or 1.0) if record.per_round else 1.0
    return max(record.train_seconds, 1e-6) / epochs


def _workers_of(config: RunConfig) -> int:
    """Return over how many sub-GCNs or workers the epochs of a run are split."""
    return config.sub_gcns if config.training.training == "split" else 1


def _with_budget(config: RunConfig, seconds: float) -> RunConfig:
    """Return a run that chooses itself what it does within a budget."""
    training = replace(
        config.training,
        budget=seconds,
        epochs=None,
        local_steps=None,
        schedule=Training.schedule,
        evaluate_every=Training.evaluate_every,
    )
    return replace(config, training=training)
