"""Ways to train one model side by side: the rows of `gistgnn compare`, and of the tables of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from gistgnn.errors import InputError
from gistgnn.experiments.runs import Record, RunStore
from gistgnn.run import RunConfig

Key = TypeVar("Key")

LABELS = {"gist": "GIST", "data-parallel": "data parallel", "local-sgd": "local SGD", "ensemble": "ensemble"}
COSTLY = 1.0  # points of the score; a speed-up that loses more stands in parentheses, as in Table 2


@dataclass(frozen=True)
class Row:
    """One way to train, over all seeds.

    Args:
        method: "gist", or one of `gistgnn.baselines`.
        sub_gcns: m, or how many workers or members.
        score: test score at the best validation score, in percent, of each seed; 0 where training diverged at once.
        seconds: of training, without evaluation, of each seed.
        speedup: the baseline's mean time over this one's.
        bytes: that a worker sends in the whole run.
        inference_seconds: of one pass over the graph, of each seed.
        peak_memory_bytes: of each seed's process.
        seconds_to: until the test score reached the baseline's final one less a margin, of each seed; None: never.
        speedup_to: the baseline's mean time until then over this one's; None where some seed never got there.
    """

    method: str
    sub_gcns: int
    score: tuple[float, ...]
    seconds: tuple[float, ...]
    speedup: float
    bytes: float
    inference_seconds: tuple[float, ...]
    peak_memory_bytes: tuple[int, ...]
    seconds_to: tuple[float | None, ...]
    speedup_to: float | None

    @property
    def name(self) -> str:
        """What the way to train is called."""
        return "one device" if self.sub_gcns == 1 else LABELS[self.method]

    @property
    def label(self) -> str:
        """What the row is called."""
        return label(self.method, self.sub_gcns)

    @property
    def mean(self) -> float:
        """The mean score, in percent."""
        return statistics.fmean(self.score)

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
        if not self.methods or all(m == 1 for m in self.sub_gcns):
            raise InputError("there is nothing to compare with the baseline: give --methods, and --sub-gcns above 1")
        if unknown := [method for method in self.methods if method not in LABELS]:
            raise InputError(f"method is '{unknown[0]}', expected one of {', '.join(LABELS)}")
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
    base = statistics.fmean(record["train_seconds"] for record in found[0])
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
                base / statistics.fmean(seconds),
                statistics.fmean(record["traffic"]["bytes_per_round"] * record["rounds"] for record in records),
                tuple(record["inference_seconds"] or 0.0 for record in records),
                tuple(record["peak_memory_bytes"] for record in records),
                reached,
                _ratio(first, reached),
            )
        )
    return rows


def label(method: str, m: int) -> str:
    """What a way to train is called; with one sub-GCN, worker or member it is the baseline."""
    return "one device" if m == 1 else f"{LABELS[method]}, m = {m}"


def chosen(record: Record) -> str:
    """Which score says which model of a run is best."""
    return "f1_micro" if record["graph"]["multi_label"] else "accuracy"


def score_of(record: Record) -> float:
    """The test score of a run in percent at its best validation score; 0 where it diverged at once."""
    return 100 * record["test"][chosen(record)] if record["test"] else 0.0


def seconds_to(record: Record, goal: float) -> float | None:
    """Seconds of training until an evaluation first had a test score, in percent; None where none had."""
    return next((entry["train_seconds"] for entry in record["history"] if 100 * entry["test"] >= goal), None)


def curve_of(record: Record) -> dict[str, Any]:
    """A run's loss and test score against epochs, seconds and bytes, as reports draw them."""
    history, per_round = record["history"], record["traffic"]["bytes_per_round"]
    method, m = record["config"].get("method", "gist"), record["config"]["sub_gcns"]
    return {
        "label": label(method, m),
        "method": method,
        "sub_gcns": m,
        "epoch": [entry["epoch"] for entry in history],
        "seconds": [entry["train_seconds"] for entry in history],
        "bytes": [per_round * entry["round"] for entry in history],
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
        "rows": [{**asdict(row), "label": LABELS[row.method]} for row in rows],
        "baseline": 0,
        "curves": [curve_of(records[0]) for records in found],
        "notes": list(NOTES),
        "config": {**config, "seeds": comparison.seeds},
    }


NOTES = (
    "One device is ordinary training of the full model. All ways see batches of the same kind and take as many steps "
    "in all, by the same kernels; each run is a process of its own, and they take turns round by round.",
    "Time is that of training, without evaluation, of all sub-GCNs, workers or members one after another on this "
    "machine. Bytes are what each of m workers would send in the whole run, by formula.",
)


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
