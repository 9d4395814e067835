"""Ways to train one model, side by side: the tables of `gistgnn compare` and of the paper."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from gistgnn.compare.many_runs import RunStore, with_seeds
from gistgnn.errors import InputError
from gistgnn.report import names
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import read_record
from gistgnn.storage.json_files import plain
from gistgnn.storage.record import Record
from gistgnn.utils.formats import duration
from gistgnn.utils.machine import provenance

BELOW = 0.5  # points below the baseline's final score: the goal to which times are compared
TIMES = (
    "Time is training time, without evaluation, of all sub-GCNs, workers or members together on "
    "this machine. Bytes are what each of m workers would send in the whole run, by formula."
)
NOTES = (
    "One device is ordinary training of the full model. All methods see batches of the same kind "
    "and use the same kernels. Each run has a process of its own. The runs follow one another: "
    "every method with seed 0, then with seed 1, and so on.",
    TIMES,
)
NORMS = "Each row has the norm that gistgnn train chooses at its m; --norm gives all rows the same."

# Settings that runs of one row may differ in.
_NOT_OF_A_ROW = (
    "seed", "device", "evaluation", "store", "store_precision", "runner", "standardise",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One method with one m, over all seeds. Tuples hold one value per seed."""

    method: str  # "gist", "budget", or one of `gistgnn.baselines`
    sub_gcns: int  # m, or the number of workers or members
    # in percent, at the best validation score; 0: diverged before the first score
    score: tuple[float, ...]
    seconds: tuple[float, ...]  # training time, without evaluation
    diverged: bool  # whether one of the runs diverged: its time compares with no other
    bytes: float  # what one worker sends in a run, on average
    # Of one pass over the graph. Runs that measured none are left out.
    inference_seconds: tuple[float, ...]
    peak_memory_bytes: tuple[int, ...]
    # Training time until the score was near the baseline's last; None where it never was.
    seconds_to: tuple[float | None, ...]
    detail: str = ""  # what else tells the row from the others, such as its learning rate

    @property
    def name(self) -> str:
        """The method's name, without m."""
        return ", ".join(filter(None, (names.method_name(self.method, self.sub_gcns), self.detail)))

    @property
    def label(self) -> str:
        """The method's name, with m."""
        return self.name if self.sub_gcns == 1 else f"{self.name}, m = {self.sub_gcns}"

    @property
    def mean(self) -> float:
        return statistics.fmean(self.score)

    @property
    def inference(self) -> float | None:
        """The mean inference time, in seconds; None if no run measured it."""
        return statistics.fmean(self.inference_seconds) if self.inference_seconds else None

    @property
    def time(self) -> float:
        return statistics.fmean(self.seconds)

    def costs_too_much(self, baseline: "Row") -> bool:
        """Whether the row loses more than a point of the baseline's score."""
        return baseline.mean - self.mean > names.COSTLY

    def times_faster(self, baseline: "Row") -> float | None:
        """The baseline's mean training time divided by this row's.

        It is None if a run of either diverged.
        """
        if self.diverged or baseline.diverged:
            return None
        return _ratio(baseline.seconds, self.seconds)

    def times_sooner(self, baseline: "Row") -> float | None:
        """As `times_faster`, but until a score near the baseline's last.

        It is None if a run of either never had this score.
        """
        return _ratio(baseline.seconds_to, self.seconds_to)


def runs_of(
    config_of: Callable[[int], RunConfig], methods: Iterable[str], sub_gcns: Iterable[int]
) -> list[RunConfig]:
    """Return the run of every row with seed 0: one device, then every method with every m above 1.

    Args:
        config_of: returns the run that `gistgnn train` would make of the options at an m.
        methods: of the rows after the first one.
        sub_gcns: every m of each method.

    Raises:
        InputError: there is one row alone.
    """
    every_m = [m for m in dict.fromkeys(sub_gcns) if m != 1]
    rows = [("gist", 1), *((method, m) for method in dict.fromkeys(methods) for m in every_m)]
    if len(rows) == 1:
        raise InputError(
            "there is nothing to compare with the baseline: give --methods, and --sub-gcns above 1"
        )
    return [replace(config_of(m), method=method, seed=0) for method, m in rows]


def details_of_rows(configs: Sequence[RunConfig]) -> list[str]:
    """Return for every row the norm, the learning rate and the epochs that not all rows share.

    Which norm suits a model depends on m, and `gistgnn train` chooses it. A budget has no epochs.
    """
    settings = []
    for config in configs:
        epochs = config.training.epochs
        settings.append(
            {
                "norm": f"norm {config.model.norm}",
                "lr": f"lr {config.training.lr:g}",
                "epochs": "" if epochs is None else f"{epochs:g} epochs",
            }
        )
    differing = [name for name in settings[0] if len({row[name] for row in settings}) > 1]
    return [", ".join(filter(None, (row[name] for name in differing))) for row in settings]


def compare(
    store: RunStore,
    configs: Sequence[RunConfig],
    seeds: int,
    label: str,
    details: Sequence[str] = (),
) -> tuple[list[Row], list[list[Record]]]:
    """Train the missing runs of every row and seed, the baseline first.

    Returns the rows, and their records by seed.

    Args:
        store: keeps the runs.
        configs: the run of every row.
        seeds: how many, from 0 on.
        label: of the progress bar.
        details: what to add to the name of every row. Defaults to nothing.
    """
    records = by_seeds(store.run_all(with_seeds(configs, seeds), label), seeds)
    return rows_of(records, details), records


def by_seeds(records: Sequence[Record], seeds: int) -> list[list[Record]]:
    """Group the records of `with_seeds` by run."""
    return [list(records[start : start + seeds]) for start in range(0, len(records), seeds)]


def rows_of(records: Sequence[Sequence[Record]], details: Sequence[str] = ()) -> list[Row]:
    """Return one row for each group of records, over its seeds; the first group is the baseline.

    Args:
        records: of each row, by seed.
        details: what tells each row from the others, beside its method and m.
    """
    split = names.scored_split(*chain(*records))
    details = details or [""] * len(records)
    return [
        _row(group, records[0], split, detail)
        for group, detail in zip(records, details, strict=True)
    ]


def _row(group: Sequence[Record], baseline: Sequence[Record], split: str, detail: str) -> Row:
    goals = [score_of(record, split) - BELOW for record in baseline]
    if _seeds(baseline) != _seeds(group):
        goals = [statistics.fmean(goals)] * len(group)
    sent = [
        names.bytes_sent(record, record.rounds, record.steps // record.traffic.workers)
        for record in group
    ]
    inference = [record.inference_seconds for record in group]
    return Row(
        method=names.method_of(group[0]),
        sub_gcns=group[0].config["sub_gcns"],
        score=tuple(score_of(record, split) for record in group),
        seconds=tuple(record.train_seconds for record in group),
        diverged=any(record.diverged is not None for record in group),
        bytes=statistics.fmean(sent),
        inference_seconds=tuple(seconds for seconds in inference if seconds is not None),
        peak_memory_bytes=tuple(record.peak_memory_bytes for record in group),
        seconds_to=tuple(
            seconds_to(record, goal, split) for record, goal in zip(group, goals, strict=True)
        ),
        detail=detail,
    )


def _seeds(records: Sequence[Record]) -> list[int]:
    return [record.config["seed"] for record in records]


def score_of(record: Record, split: str = "test") -> float:
    """Return a run's score at its best validation score, in percent.

    It is 0 if the run diverged before the first score.
    """
    return 100 * (names.scores_of(record).get(split, {}).get(record.metric.name) or 0.0)


def seconds_to(record: Record, goal: float, split: str = "test") -> float | None:
    """Return a run's training time until its score first was `goal` percent; None: it never was."""
    for entry, score in zip(record.history, names.history_of(record, split), strict=True):
        if score is not None and 100 * score >= goal:
            return entry["train_seconds"]
    return None


def table_record(
    title: str, rows: Sequence[Row], records: Sequence[Sequence[Record]]
) -> dict[str, Any]:
    """Return what comparison.json holds of some rows.

    `records` are those of each row by seed, the baseline first.
    """
    first = records[0][0]
    split = names.scored_split(*chain(*records))
    return {
        "title": title,
        "dataset": first.config["dataset"],
        "graph": plain(first.graph),
        "score": first.metric.name,
        "split": split,
        "below": BELOW,
        "baseline": 0,
        "rows": [_row_record(row, rows[0]) for row in rows],
        "curves": [_curve(row, group[0], split) for row, group in zip(rows, records, strict=True)],
    }


def _row_record(row: Row, baseline: Row) -> dict[str, Any]:
    return {
        **asdict(row),
        "speedup": row.times_faster(baseline),
        "speedup_to": row.times_sooner(baseline),
        "name": row.label,
        "mean": row.mean,
        "inference": row.inference,
        "costly": row.costs_too_much(baseline),
    }


def training_record(
    runs: Sequence[RunConfig], seeds: int, seconds: float | None = None
) -> dict[str, Any]:
    """Return what else comparison.json holds of runs that were trained for it.

    Args:
        runs: of every row, the baseline first.
        seeds: how many runs each row has.
        seconds: how long each run trained. Defaults to none: their epochs were given.
    """
    base = runs[0]
    origin = provenance(base.device)
    if seconds is not None:
        steps = (
            f"Every run has as many epochs as it was measured to train in {duration(seconds)}, and "
            "its learning rate follows its schedule to the end. A budget has this time for "
            "everything, also for trials and evaluation."
        )
    elif base.training.patience:
        steps = "A run stops early when its validation score no longer rises."
    elif base.training.training == "each":
        steps = (
            "Every sub-GCN, worker or member gets all epochs: with m of them, m times the "
            "steps of one device."
        )
    else:
        steps = (
            "Epochs are split over sub-GCNs, workers and members: all rows take the same "
            "number of steps in total."
        )
    norms = [] if len({run.model.norm for run in runs}) == 1 else [NORMS]
    of_time = {} if seconds is None else {"budget": seconds}
    return {
        "machine": origin["machine"],
        "command": origin["command"],
        "provenance": origin,
        "notes": [steps, *norms, *NOTES],
        "config": {**base.as_dict(), "seeds": seeds, **of_time},
    }


def _curve(row: Row, record: Record, split: str) -> dict[str, Any]:
    """Return the score of a row's first run against epochs and seconds."""
    scores = names.history_of(record, split)
    return {
        "label": row.label,
        "score": [None if score is None else 100 * score for score in scores],
        "epoch": [entry["epoch"] for entry in record.history],
        "seconds": [entry["train_seconds"] for entry in record.history],
    }


def _ratio(baseline: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    """Return the mean of the baseline's times divided by that of the others.

    Returns None if a time is missing or 0.
    """
    baseline_seconds = [seconds or 0.0 for seconds in baseline]
    other_seconds = [seconds or 0.0 for seconds in other]
    if not (all(baseline_seconds) and all(other_seconds)):
        return None
    return statistics.fmean(baseline_seconds) / statistics.fmean(other_seconds)


def speedup(row: Row, baseline: Row) -> str:
    """Format a speed-up.

    It is in parentheses if it costs more than a point of the score, as in the paper's Table 2.
    """
    times = row.times_faster(baseline)
    if times is None:
        return "–"
    return f"({times:.2f}x)" if row.costs_too_much(baseline) else f"{times:.2f}x"


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return a table in Markdown, followed by a note."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{note}\n"


def compare_runs(folders: Sequence[Path]) -> tuple[list[Row], dict[str, Any]]:
    """Compare finished runs on one graph.

    Args:
        folders: of the runs. Runs that differ in the seed alone share a row. The baseline is
            ordinary training of the full model if one of the runs is that, else the first run.

    Returns:
        The rows, the baseline first, and what comparison.json holds.

    Raises:
        InputError: a folder has no run that can be compared, all have the same settings, or their
            graphs or their scores differ.
    """
    by_path: dict[Path, Path] = {}
    for folder in folders:
        by_path.setdefault(folder.resolve(), folder)  # One that is named twice counts once.
    records = {folder: read_record(folder) for folder in by_path.values()}
    groups = _by_settings(records)
    _require_one_graph_and_score(records)

    def is_baseline(group: Sequence[Record]) -> bool:
        return (names.method_of(group[0]), group[0].config["sub_gcns"]) == ("gist", 1)

    ordered = sorted(groups, key=is_baseline, reverse=True)
    rows = rows_of(ordered, _details([_settings(group[0]) for group in ordered]))
    machines = list(dict.fromkeys(record.machine for record in records.values()))
    notes = _notes_on(records)
    if len(machines) > 1:
        notes.append("The runs were made on different machines: their times cannot be compared.")
    return rows, {
        **table_record(f"{len(records)} runs on {ordered[0][0].graph.name}", rows, ordered),
        "machine": "; ".join(machines),
        "provenance": provenance("cpu"),
        "notes": [*notes, TIMES],
        "config": {str(folder): record.config for folder, record in records.items()},
    }


def _require_one_graph_and_score(records: Mapping[Path, Record]) -> None:
    """Refuse runs on several graphs, or whose models were selected by different scores."""
    first_folder, first = next(iter(records.items()))
    for folder, record in records.items():
        if any(
            getattr(record.graph, fact) != getattr(first.graph, fact)
            for fact in ("name", "nodes", "edges", "classes")
        ):
            raise InputError(
                f"{first_folder} is of the graph {first.graph.name}, {folder} of "
                f"{record.graph.name}: compare runs on one graph"
            )
        if record.metric.name != first.metric.name:
            raise InputError(
                f"the score of {first_folder} is {first.metric.name}, that of {folder} "
                f"{record.metric.name}: compare runs with one --metric"
            )


def _by_settings(records: Mapping[Path, Record]) -> list[list[Record]]:
    """Group runs that differ in the seed alone, in their order.

    Runs whose scores cannot be compared are refused.
    """
    groups = dict[str, list[Record]]()
    for folder, record in records.items():
        score = record.metric.name
        if not names.is_share(record, score):
            raise InputError(
                f"the score of {folder} is {score}, but compare shows shares of 100 %: use gistgnn "
                "list"
            )
        if any(scores[score] is None for scores in names.scores_of(record).values()):
            raise InputError(f"{folder} has no {score} of its nodes: leave it out")
        groups.setdefault(json.dumps(_settings(record), sort_keys=True), []).append(record)
    if len(groups) < 2:
        folder = next(iter(records))
        raise InputError(
            f"there is nothing to compare in {folder}: give the folders of two different runs or "
            "more"
        )
    return list(groups.values())


def _notes_on(records: Mapping[Path, Record]) -> list[str]:
    """Return what a reader has to know of some runs.

    This names those that did not end as they should, those with estimated scores, and those on
    other data.
    """
    notes = []
    for folder, record in records.items():
        if record.interrupted:
            notes.append(f"{folder} was interrupted: its scores and times are those so far.")
        if record.diverged is not None:
            notes.append(f"{folder} diverged: {record.diverged}.")
        if record.evaluation.get("exact") is False:
            notes.append(f"{folder} was evaluated in parts: its scores are estimates.")
    first, *later = records
    digests = {folder: record.fingerprint.get("graph", {}) for folder, record in records.items()}
    for folder in later:
        parts = digests[first] | digests[folder]
        differing = [
            part for part in parts if digests[first].get(part) != digests[folder].get(part)
        ]
        if differing:
            notes.append(f"{first} and {folder} are of different data: {', '.join(differing)}.")
    return notes


def _settings(record: Record) -> dict[str, Any]:
    """Return the settings of a run that decide its result, but for the seed.

    The levels of the configuration are flattened.
    """
    config = record.config
    sampler = config["sampler"] or {"name": "full"}
    of_model = {
        key: value for key, value in config["model"].items() if key not in ("name", "hidden")
    }
    training = dict(config["training"])
    if not training.get("epochs"):  # The run had a budget.
        training.pop("epochs", None)
    elsewhere = ("model", "training", "sampler")
    of_run = {
        key: value
        for key, value in config.items()
        if key not in _NOT_OF_A_ROW and key not in elsewhere
    }
    return {
        "model": names.model_of(record),
        **of_model,
        **training,
        "sampler": " ".join(map(str, sampler.values())),
        **of_run,
    }


def _details(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return for every row the settings, beside method and m, that differ between the rows."""
    setting_names = dict.fromkeys(
        name for of_row in settings for name in of_row if name not in ("method", "sub_gcns")
    )
    differing = [
        name
        for name in setting_names
        if len({json.dumps(of_row.get(name)) for of_row in settings}) > 1
    ]
    return [
        ", ".join(_setting(name, of_row[name]) for name in differing if name in of_row)
        for of_row in settings
    ]


def _setting(name: str, value: Any) -> str:
    """Return a setting in a few words."""
    if name == "model":
        return str(value)
    if name == "sampler":
        return f"sampler {value}"
    return f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value)}"
