"""Ways to train one model side by side: the rows of `gistgnn compare`, and of the tables of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from gistgnn.compare.many_runs import Record, RunStore
from gistgnn.errors import InputError
from gistgnn.report.words import COSTLY, METHODS, called, chosen, sent
from gistgnn.runs.config import RunConfig

Key = TypeVar("Key")


@dataclass(frozen=True)
class Row:
    """One way to train, over all seeds.

    Args:
        method: "gist", or one of `gistgnn.baselines`.
        sub_gcns: m, or how many workers or members.
        score: test score at the best validation score, in percent, of each seed; 0 where training diverged at once.
        seconds: of training, without evaluation, of each seed.
        speedup: the baseline's mean time over this one's; None where a run of either diverged.
        bytes: that a worker sends in the whole run.
        inference_seconds: of one pass over the graph, of each seed that came to one.
        peak_memory_bytes: of each seed's process.
        seconds_to: until the test score reached the baseline's final one less a margin, of each seed; None: never.
        speedup_to: the baseline's mean time until then over this one's; None where some seed never got there.
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

    @property
    def name(self) -> str:
        """What the way to train is called."""
        return called(self.method, self.sub_gcns)

    @property
    def label(self) -> str:
        """What the row is called, with m."""
        return label(self.method, self.sub_gcns)

    @property
    def mean(self) -> float:
        """The mean score, in percent."""
        return statistics.fmean(self.score)

    @property
    def inference(self) -> float | None:
        """The mean time of inference, in seconds; None where no run came to it."""
        return statistics.fmean(self.inference_seconds) if self.inference_seconds else None

    @property
    def time(self) -> float:
        """The mean time of training, in seconds."""
        return statistics.fmean(self.seconds)

    def costs_too_much(self, baseline: Row) -> bool:
        """Whether it loses more than a point of the baseline's score."""
        return baseline.mean - self.mean > COSTLY


@dataclass(frozen=True)
class Comparison:
    """Several ways to train the same model on the same batches.

    Args:
        base: the run that all have in common.
        methods: names of `gistgnn.baselines.METHODS`.
        sub_gcns: every m.
        seeds: how many.
        below: points below the baseline's score, for the times to a fixed score.

    Raises:
        InputError: nothing to compare, or a setting out of range.
    """

    base: RunConfig
    methods: tuple[str, ...]
    sub_gcns: tuple[int, ...]
    seeds: int = 1
    below: float = 0.5

    def __post_init__(self) -> None:
        """Check what can be without a graph."""
        if small := [m for m in self.sub_gcns if m < 1]:
            raise InputError(f"sub_gcns is {small[0]}, expected an integer >= 1")
        if not self.methods or not any(m > 1 for m in self.sub_gcns):
            raise InputError("there is nothing to compare with the baseline: give --methods, and --sub-gcns above 1")
        if unknown := [method for method in self.methods if method not in METHODS]:
            raise InputError(f"method is '{unknown[0]}', expected one of {', '.join(METHODS)}")
        if not 0 <= self.below < 100:
            raise InputError(f"below is {self.below:g}, expected points from 0 to 100")

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, m) of every row, the baseline first."""
        return [("gist", 1)] + [(method, m) for method in self.methods for m in self.sub_gcns if m > 1]

    def configs(self) -> list[RunConfig]:
        """All runs, row by row."""
        return [self.config(*cell, seed) for cell in self.cells for seed in range(self.seeds)]

    def config(self, method: str, m: int, seed: int) -> RunConfig:
        """One of the runs."""
        return replace(self.base, method=method, sub_gcns=m, seed=seed)

    def run(self, store: RunStore, at_once: int | None = None) -> tuple[list[Row], list[list[Record]]]:
        """Do the runs that are not there yet, in turns; return the rows, and the records of each.

        Args:
            store: finished runs.
            at_once: how many runs of a seed take turns; None: all.
        """
        records = iter(store.in_turns(self.configs(), "comparing", at_once=at_once))
        found = [[next(records) for _ in range(self.seeds)] for _ in self.cells]
        return rows_of(found, self.below), found


def rows_of(found: Sequence[Sequence[Record]], below: float = 0.5) -> list[Row]:
    """Sum up the records of each row over seeds; the first row is the baseline."""
    goals = [score_of(record) - below for record in found[0]]
    first = [seconds_to(record, goal) for record, goal in zip(found[0], goals, strict=True)]
    rows = []
    for records in found:
        seconds = tuple(record["train_seconds"] for record in records)
        reached = tuple(seconds_to(record, goal) for record, goal in zip(records, goals, strict=True))
        rows.append(
            Row(
                records[0]["config"].get("method", "gist"),
                records[0]["config"]["sub_gcns"],
                tuple(map(score_of, records)),
                seconds,
                _speedup(found[0], records),
                statistics.fmean(sent(record, record["rounds"], _steps(record)) for record in records),
                tuple(record["inference_seconds"] for record in records if record["inference_seconds"] is not None),
                tuple(record["peak_memory_bytes"] for record in records),
                reached,
                _ratio(first, reached),
            )
        )
    return rows


def label(method: str, m: int) -> str:
    """What a way to train is called, with m."""
    return called(method, m) if m == 1 else f"{called(method, m)}, m = {m}"


def score_of(record: Record) -> float:
    """The test score of a run in percent at its best validation score; 0 where it diverged at once."""
    return 100 * record["test"][chosen(record)] if record["test"] else 0.0


def seconds_to(record: Record, goal: float) -> float | None:
    """Seconds of training until an evaluation first had a test score, in percent; None where none had."""
    return next((entry["train_seconds"] for entry in record["history"] if 100 * entry["test"] >= goal), None)


def curve_of(record: Record) -> dict[str, Any]:
    """A run's loss and test score against epochs, seconds and bytes, as reports draw them."""
    history = record["history"]
    method, m = record["config"].get("method", "gist"), record["config"]["sub_gcns"]
    return {
        "label": label(method, m),
        "method": method,
        "sub_gcns": m,
        "epoch": [entry["epoch"] for entry in history],
        "seconds": [entry["train_seconds"] for entry in history],
        "bytes": [sent(record, entry["round"], entry["step"]) for entry in history],
        "loss": [entry["loss"] for entry in history],
        "score": [100 * entry["test"] for entry in history],
    }


def comparison_record(
    comparison: Comparison, rows: Sequence[Row], found: Sequence[Sequence[Record]], machine: str, command: str
) -> dict[str, Any]:
    """What comparison.json holds, and the report is made of."""
    graph, config = found[0][0]["graph"], comparison.base.as_dict()
    return {
        "title": f"{config['model']['name']} on {graph['name']}",
        "dataset": config["dataset"],
        "graph": graph,
        "machine": machine,
        "command": command,
        "score": chosen(found[0][0]),
        "below": comparison.below,
        "rows": [{**asdict(row), "label": row.name} for row in rows],
        "baseline": 0,
        "curves": [curve_of(records[0]) for records in found],
        "notes": [_said_of_steps(comparison.base), *NOTES],
        "config": {**config, "seeds": comparison.seeds},
    }


NOTES = (
    "One device is ordinary training of the full model. All ways see batches of the same kind and run by the same "
    "kernels; each run is a process of its own, and they take turns round by round.",
    "Time is that of training, without evaluation, of all sub-GCNs, workers or members together on this one "
    "machine. Bytes are what each of m workers would send in the whole run, by formula.",
)


def _said_of_steps(run: RunConfig) -> str:
    training = run.training
    if training.patience:
        return "Runs stop early, each at its own time."
    if training.training == "each":
        return "Every sub-GCN, worker or member gets all epochs: with m of them, m times the steps of one device."
    return "Epochs are split over sub-GCNs, workers and members: all rows take as many steps in all."


def _speedup(base: Sequence[Record], other: Sequence[Record]) -> float | None:
    if any("diverged" in record or not record["train_seconds"] for record in (*base, *other)):
        return None
    first, mine = (statistics.fmean(record["train_seconds"] for record in records) for records in (base, other))
    return first / mine


def _steps(record: Record) -> int:
    """Steps that each worker has taken."""
    return record["steps"] // record["traffic"]["workers"]


def _ratio(first: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    known = [value for value in (*first, *other) if value is not None]
    if len(known) < len(first) + len(other) or not all(other):
        return None
    return statistics.fmean(known[: len(first)]) / statistics.fmean(known[len(first) :])


def compare_groups(
    store: RunStore, groups: Mapping[Key, Sequence[RunConfig]], seeds: int, label: str
) -> dict[Key, tuple[list[Row], list[list[Record]]]]:
    """Do groups of runs, one group after another, the runs of one seed of a group in turns.

    Args:
        store: finished runs.
        groups: of each, the runs that are compared, the baseline first; their seed is set here.
        seeds: how many times each is run.
        label: of the progress bar.

    Returns:
        For every group its rows, and the records of each.
    """
    found = {}
    for key, group in groups.items():
        wanted = [replace(config, seed=seed) for config in group for seed in range(seeds)]
        records = iter(store.in_turns(wanted, label))
        each = [[next(records) for _ in range(seeds)] for _ in group]
        found[key] = rows_of(each), each
    return found
