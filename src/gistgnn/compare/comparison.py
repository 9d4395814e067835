"""Several ways to train one model, side by side: the rows of `gistgnn compare`, and of the paper's tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gistgnn.baselines.registry import METHODS
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.processes import Record
from gistgnn.errors import InputError
from gistgnn.report.names import COSTLY, bytes_sent, main_score, method_name, method_of
from gistgnn.runs.config import RunConfig
from gistgnn.utils.machine import provenance

TIMES = (
    "Time is training time, without evaluation, of all sub-GCNs, workers or members together on this machine. Bytes "
    "are what each of m workers would send in the whole run, by formula."
)
NOTES = (
    "One device is ordinary training of the full model. All methods see batches of the same kind and use the same "
    "kernels. Each run has a process of its own, and the runs take turns, round by round.",
    TIMES,
)


@dataclass(frozen=True)
class Row:
    """One method with one m, over all seeds. Tuples hold one value per seed.

    Args:
        method: "gist", "phases", or one of `gistgnn.baselines`.
        sub_gcns: m, or the number of workers or members.
        score: test score at the best validation score, in percent; 0 if training diverged before the first score.
        seconds: training time, without evaluation.
        speedup: the baseline's mean time divided by this row's; None if a run of either diverged.
        bytes: what one worker sends in a run, on average.
        inference_seconds: time of one pass over the graph; runs that measured none are left out.
        peak_memory_bytes: the peak of the run's process.
        seconds_to: training time until the test score came within a margin of the baseline's final one; None: never.
        speedup_to: as `speedup`, but for `seconds_to`; None if it is None for a seed of either.
        detail: what else tells the row from the others, such as its learning rate; empty: nothing.
    """

    method: str
    sub_gcns: int
    score: tuple[float, ...]
    seconds: tuple[float, ...]
    speedup: float | None
    bytes: float
    inference_seconds: tuple[float, ...]
    peak_memory_bytes: tuple[int, ...]
    seconds_to: tuple[float | None, ...]
    speedup_to: float | None
    detail: str = ""

    @property
    def name(self) -> str:
        """The method's name, without m."""
        return ", ".join(filter(None, (method_name(self.method, self.sub_gcns), self.detail)))

    @property
    def label(self) -> str:
        """The method's name, with m."""
        return self.name if self.sub_gcns == 1 else f"{self.name}, m = {self.sub_gcns}"

    @property
    def mean(self) -> float:
        """The mean score, in percent."""
        return statistics.fmean(self.score)

    @property
    def inference(self) -> float | None:
        """The mean inference time, in seconds; None if no run measured it."""
        return statistics.fmean(self.inference_seconds) if self.inference_seconds else None

    @property
    def time(self) -> float:
        """The mean training time, in seconds."""
        return statistics.fmean(self.seconds)

    def costs_too_much(self, baseline: Row) -> bool:
        """Whether the row loses more than a point of the baseline's score."""
        return baseline.mean - self.mean > COSTLY


@dataclass(frozen=True)
class Comparison:
    """Several methods that train the same model on the same graph.

    Args:
        base: the settings that all runs share.
        methods: names of `gistgnn.baselines.registry.METHODS`.
        sub_gcns: every m.
        seeds: how many.
        below: points below the baseline's final score, for the times to a fixed score.
    """

    base: RunConfig
    methods: tuple[str, ...]
    sub_gcns: tuple[int, ...]
    seeds: int = 1
    below: float = 0.5

    def __post_init__(self) -> None:
        """Check what can be checked without a graph."""
        if small := [m for m in self.sub_gcns if m < 1]:
            raise InputError(f"sub_gcns is {small[0]}, expected an integer >= 1")
        if not self.methods or not any(m > 1 for m in self.sub_gcns):
            raise InputError("there is nothing to compare with the baseline: give --methods, and --sub-gcns above 1")
        if unknown := [method for method in self.methods if method not in METHODS]:
            raise InputError(f"method is '{unknown[0]}', expected one of {', '.join(METHODS)}")
        if not 0 <= self.below < 100:
            raise InputError(f"below is {self.below:g}, expected points from 0 to 100")

    @property
    def configs(self) -> list[RunConfig]:
        """The run of every row with seed 0, the baseline first."""
        rows = [("gist", 1), *((method, m) for method in self.methods for m in self.sub_gcns if m > 1)]
        return [replace(self.base, method=method, sub_gcns=m, seed=0) for method, m in rows]


def compare(
    store: RunStore,
    configs: Sequence[RunConfig],
    seeds: int,
    label: str,
    below: float = 0.5,
    at_once: int | None = None,
) -> tuple[list[Row], list[list[Record]]]:
    """Train the runs that are missing; return the rows, and the records of each row by seed.

    Args:
        store: finished runs.
        configs: one run for each row, the baseline first; their seeds are set here.
        seeds: how often each run is repeated.
        label: of the progress bar.
        below: see `rows_of`.
        at_once: how many runs of a seed take turns; None: all.
    """
    records = by_seeds(store.in_turns(with_seeds(configs, seeds), label, at_once=at_once), seeds)
    return rows_of(records, below), records


def with_seeds(configs: Iterable[RunConfig], seeds: int) -> list[RunConfig]:
    """Repeat every run with seeds 0, 1, ..."""
    return [replace(config, seed=seed) for config in configs for seed in range(seeds)]


def by_seeds(records: Sequence[Record], seeds: int) -> list[list[Record]]:
    """Group the records of `with_seeds` by run."""
    return [list(records[start : start + seeds]) for start in range(0, len(records), seeds)]


def rows_of(records: Sequence[Sequence[Record]], below: float = 0.5, details: Sequence[str] = ()) -> list[Row]:
    """Return one row for each group of records, over its seeds; the first group is the baseline.

    Args:
        records: the groups.
        below: points below the baseline's final score, for the times to a fixed score.
        details: what tells each group from the others beside method and m; none: nothing.
    """
    goals = [score_of(record) - below for record in records[0]]
    every = zip(records, details or [""] * len(records), strict=True)
    return [_row(group, records[0], goals, detail) for group, detail in every]


def _row(group: Sequence[Record], baseline: Sequence[Record], goals: Sequence[float], detail: str) -> Row:
    own = goals if len(goals) == len(group) else [statistics.fmean(goals)] * len(group)  # seeds may not correspond
    reached = tuple(map(seconds_to, group, own))
    return Row(
        method=method_of(group[0]),
        sub_gcns=group[0]["config"]["sub_gcns"],
        score=tuple(map(score_of, group)),
        seconds=tuple(record["train_seconds"] for record in group),
        speedup=_speedup(list(map(_full_time, baseline)), list(map(_full_time, group))),
        bytes=statistics.fmean(
            bytes_sent(record, record["rounds"], record["steps"] // record["traffic"]["workers"]) for record in group
        ),
        inference_seconds=tuple(r["inference_seconds"] for r in group if r["inference_seconds"] is not None),
        peak_memory_bytes=tuple(record["peak_memory_bytes"] for record in group),
        seconds_to=reached,
        speedup_to=_speedup(list(map(seconds_to, baseline, goals)), reached),
        detail=detail,
    )


def score_of(record: Record) -> float:
    """Return a run's test score at its best validation score, in percent; 0 if it diverged before the first score."""
    return 100 * record["test"][main_score(record)] if record["test"] else 0.0


def seconds_to(record: Record, goal: float) -> float | None:
    """Return a run's training time until its test score was `goal` percent for the first time; None: never."""
    return next((entry["train_seconds"] for entry in record["history"] if 100 * entry["test"] >= goal), None)


def curve_of(record: Record, detail: str = "") -> dict[str, Any]:
    """Return a run's loss and test score against epochs, seconds and bytes, for the report.

    `detail` is as in `Row`.
    """
    history = record["history"]
    method, m = method_of(record), record["config"]["sub_gcns"]
    name = ", ".join(filter(None, (method_name(method, m), detail)))
    return {
        "label": name if m == 1 else f"{name}, m = {m}",
        "method": method,
        "sub_gcns": m,
        "epoch": [entry["epoch"] for entry in history],
        "seconds": [entry["train_seconds"] for entry in history],
        "bytes": [bytes_sent(record, entry["round"], entry["step"]) for entry in history],
        "loss": [entry["loss"] for entry in history],
        "score": [100 * entry["test"] for entry in history],
    }


def comparison_record(
    comparison: Comparison, rows: Sequence[Row], records: Sequence[Sequence[Record]], machine: str, command: str
) -> dict[str, Any]:
    """Return the content of comparison.json, from which the report is made."""
    config = comparison.base.as_dict()
    own = {"machine": machine, "command": command, "provenance": provenance(comparison.base.device)}
    own |= {"notes": [_note_on_steps(comparison.base), *NOTES], "config": {**config, "seeds": comparison.seeds}}
    title = f"{config['model']['name']} on {records[0][0]['graph']['name']}"
    return {**table_record(title, rows, records, comparison.below), **own}


def table_record(title: str, rows: Sequence[Row], records: Sequence[Sequence[Record]], below: float) -> dict[str, Any]:
    """Return what comparison.json holds of any rows; `records` are those of each row by seed, the baseline first."""
    first = records[0][0]
    return {
        "title": title,
        "dataset": first["config"]["dataset"],
        "graph": first["graph"],
        "score": main_score(first),
        "below": below,
        "rows": [{**asdict(row), "label": row.name} for row in rows],
        "baseline": 0,
        "curves": [curve_of(group[0], row.detail) for group, row in zip(records, rows, strict=True)],
    }


def _note_on_steps(run: RunConfig) -> str:
    if run.training.patience:
        return "A run stops early when its validation score no longer rises."
    if run.training.training == "each":
        return "Every sub-GCN, worker or member gets all epochs: with m of them, m times the steps of one device."
    return "Epochs are split over sub-GCNs, workers and members: all rows take the same number of steps in total."


def _full_time(record: Record) -> float | None:
    return None if "diverged" in record else record["train_seconds"] or None


def _speedup(baseline: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    """Return the baseline's mean time divided by the other's; None if a time is missing, or another's is 0."""
    known, others = ([seconds for seconds in times if seconds is not None] for times in (baseline, other))
    if len(known) < len(baseline) or len(others) < len(other) or not all(others):
        return None
    return statistics.fmean(known) / statistics.fmean(others)
