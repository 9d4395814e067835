"""The pages of a run, a comparison and a reproduction, and a run's curves, from records."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gistgnn.report import names, render
from gistgnn.report.baseline import find_baseline
from gistgnn.report.charts import Chart, Series, draw_charts
from gistgnn.report.names import COSTLY, score_name
from gistgnn.storage.record import Record
from gistgnn.utils.formats import (
    NBSP,
    duration,
    finite_values,
    mean_sd,
    percent,
    plural,
    size,
    time_unit,
    times,
)

HARD = 0.05
"""How far the F1 of a hard class is below the mean of the classes."""
_MOST_HARD = 10  # classes that a page shows as hard

_ACTIVITIES = {
    "prepare": "preparing: clusters, first batch",
    "take": "slices of Θ into the sub-GCNs",
    "train": "local steps with their batches",
    "merge": "sub-GCNs back into Θ",
    "evaluate": "evaluation between rounds",
    "save": "checkpoints",
}
_HELD = {
    "process": "Python, torch and other data before the run",
    "graph": "graph",
    "theta": "Θ",
    "best": "best Θ so far",
    "moments": "moments of the optimiser",
    "sub_gcns": "sub-GCNs with gradients and moments",
}


def run_page(record: Record, folder: Path | None = None) -> str:
    """Return the page of a run.

    Args:
        record: of the run.
        folder: that the run is written to. A run on one device beside it is its baseline.
    """
    graph = record.graph
    about = f"{graph.nodes:,} nodes, {graph.edges:,} edges, {graph.features:,} features"
    outputs = plural(graph.classes, "target") if graph.regression else f"{graph.classes:,} classes"
    baseline = find_baseline(folder, record) if folder else None
    hard, other = _classes(record)
    return render(
        "run.html",
        title=f"{graph.name}: {names.model_of(record)}",
        subtitle=f"{names.method_label(record)} · {about}, {outputs}",
        record=record, ensemble=_is_ensemble(record),
        scores=_score_table(record, baseline), has_baseline=baseline is not None,
        facts=names.training_facts(record), last=_last_scores(record), hard=hard, other=other,
        class_columns=_class_columns(record),
        charts=[chart for chart in _charts(record) if chart.has_a_curve()],
        coverage=_coverage(record), seconds=_seconds(record), memory=_memory(record),
        **_origin({"provenance": record.provenance, "config": names.settings_used(record)}),
    )  # fmt: skip


def _origin(record: dict[str, Any]) -> dict[str, Any]:
    """Return what every page ends with: where its numbers come from, and the settings."""
    provenance = record.get("provenance") or {}
    return {
        "origin": provenance,
        "command": record.get("command") or provenance.get("command"),
        "config": record.get("config", {}),
    }


def _is_ensemble(record: Record) -> bool:
    return names.method_of(record) == "ensemble"


def curves(record: Record) -> Figure:
    """Draw loss and scores of a run against epochs and time."""
    key = record.metric.name
    split = names.scored_split(record)
    title = f"{record.graph.name}, {names.model_of(record)}, m = {names.sub_gcns_of(record)}"
    if scores := names.scores_of(record).get(split):
        title += f": {split} {names.score_text(record, key, scores[key])}"
    return draw_charts(_charts(record), title)


def _score_table(
    record: Record, baseline: tuple[str, Record] | None
) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the scores of a run and of its baseline, with what they took.

    The score that selected the model comes first.
    """
    runs = {names.method_label(record): record}
    if baseline is not None:
        name, run = baseline
        runs[f"baseline: {names.ONE_DEVICE}, {name}"] = run
    metric = record.metric.name
    scores = [(split, key) for split, table in names.scores_of(record).items()
              for key in names.score_keys([table])]  # fmt: skip
    scores.sort(key=lambda score: score[1] != metric)
    rows = []
    for name, run in runs.items():
        tables = names.scores_of(run)
        cells = [
            names.score_text(run, key, tables.get(split, {}).get(key)) for split, key in scores
        ]
        rows.append([name, *cells, duration(run.train_seconds), size(run.peak_memory_bytes)])
    columns = [f"{split} {score_name(key)}" for split, key in scores]
    return ["", *columns, "training", "peak memory"], rows


def _last_scores(record: Record) -> tuple[list[str], list[list[str]]] | None:
    """Return columns and rows of the scores of the last round, if it was not the best one."""
    tables = {split: record.last[split] for split in ("test", "validation") if split in record.last}
    if not tables or record.best_round == record.rounds:
        return None
    keys = names.score_keys(tables.values())
    rows = [
        [split, *(names.score_text(record, key, scores.get(key)) for key in keys)]
        for split, scores in tables.items()
    ]
    return ["", *map(score_name, keys)], rows


def _class_columns(record: Record) -> list[str]:
    """Return the columns of `_classes`. Older records do not have the last one."""
    columns = ["class", f"{names.scored_split(record)} nodes", "F1"]
    return [*columns, "mistaken for"] if _has_errors(record) else columns


def _has_errors(record: Record) -> bool:
    return any("missed" in of_class for of_class in record.classes)


def _classes(record: Record) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows of the hardest classes, the hardest first, and of the other ones.

    A class is hard if its F1 is at least `HARD` below the mean of the classes.
    """
    class_names = record.graph.class_names or [
        str(number) for number in range(record.graph.classes)
    ]
    f1 = {number: of_class["f1"] for number, of_class in enumerate(record.classes)}
    scored = [number for number in f1 if record.classes[number]["nodes"]]
    limit = statistics.fmean(f1[number] for number in scored) - HARD if scored else 0.0
    hard = sorted((number for number in scored if f1[number] <= limit), key=f1.__getitem__)
    rows = []
    for number, of_class in enumerate(record.classes):
        row = [class_names[number], f"{of_class['nodes']:,}", percent(f1[number])]
        if _has_errors(record):
            instead = [
                f"{'no class' if label == '-1' else class_names[int(label)]} ({count:,})"
                for label, count in of_class.get("missed", {}).items()
            ]
            row.append(", ".join(instead))
        rows.append(row)
    hardest = hard[:_MOST_HARD]
    other = [row for number, row in enumerate(rows) if number not in hardest]
    return [rows[number] for number in hardest], other


def _charts(record: Record) -> list[Chart]:
    """Return the loss of every round and the score of every evaluation, against epochs and time."""
    history = record.history
    rounds: Sequence[Mapping[str, Any]] = record.per_round or history
    key = record.metric.name
    score = names.score_name(key)
    scale = 100 if names.is_share(record, key) else 1
    best = next((entry for entry in history if entry["round"] == record.best_round), None)
    mark = None if best is None or _is_ensemble(record) else best["epoch"]
    second, time_name = time_unit(max((entry["train_seconds"] for entry in history), default=0.0))
    epochs = [entry["epoch"] for entry in history]
    lines = []
    for colour, split in enumerate(("test", "validation")):
        values = names.history_of(record, split)
        if any(value is not None for value in values):
            percents = [_scaled(value, scale) for value in values]
            lines.append(Series(split, epochs, percents, colour, dashed=bool(colour)))
    loss = Series(
        "training loss",
        [entry["epoch"] for entry in rounds],
        [entry["loss"] for entry in rounds],
        colour=7,
    )

    def against_time(
        title: str, ylabel: str, series: list[Series], entries: Sequence[Mapping[str, Any]]
    ) -> Chart:
        seconds = [_scaled(entry["train_seconds"], 1 / second) for entry in entries]
        return Chart(
            title, "epoch", ylabel, series, mark=mark,
            top_label=f"{time_name} of training", top_x=seconds if series else (),
        )  # fmt: skip

    ylabel = f"{score} (%)" if scale == 100 else score
    return [
        against_time("Training loss", "loss", [loss], rounds),
        against_time(score[:1].upper() + score[1:], ylabel, lines, history),
    ]


def _scaled(score: float | None, scale: float) -> float | None:
    return None if score is None else scale * score


def _seconds(record: Record) -> dict[str, float]:
    """Return the seconds of each part of a run, in words."""
    return {_ACTIVITIES.get(key, key): value for key, value in record.seconds.items() if value > 0}


def _memory(record: Record) -> dict[str, int]:
    """Return the bytes that each part of a run held, in words.

    Batches and activations are what the process held beyond them at most. A record that does not
    say what the process held before the run says nothing of them.
    """
    memory = {_HELD.get(key, key): value for key, value in record.memory.items() if value > 0}
    beyond = record.peak_memory_bytes - sum(record.memory.values())
    if "process" in record.memory and beyond > 0:
        memory["batches and activations"] = beyond
    return memory


def _coverage(record: Record) -> dict[str, Any]:
    """Return what the page shows of the coverage.

    Weights that are zero between blocks are not called untrained.
    """
    never = record.coverage.never_trained
    return {
        "all": never == 0,
        "never": f"< 0.01{NBSP}%" if 0 < never < 5e-5 else percent(never),
        "zero": names.is_joined(record),
        "expected": 0 < never < 1 and not names.is_joined(record) and not _is_ensemble(record),
    }


def comparison_page(record: dict[str, Any]) -> str:
    """Return the page of a comparison, from the content of comparison.json."""
    rows = record["rows"]
    graph = record["graph"]
    score = f"{record['split']} {score_name(record['score'])}"
    fast = [row for row in rows[1:] if row["speedup"] and not row["costly"]]
    return render(
        "comparison.html",
        title=record["title"],
        subtitle=f"{record['dataset']} · {graph['nodes']:,} nodes, {graph['edges']:,} edges · "
                 f"{record['machine']}",
        record=record, baseline=rows[0],
        best=max(rows, key=lambda row: float(row["mean"])),
        fastest=max(fast, key=lambda row: float(row["speedup"]), default=None),
        table=comparison_table(record), costly=f"{COSTLY:g}", below=f"{record['below']:g}",
        charts=_comparison_charts(record, f"{score} (%)"),
        several=any(len(row["score"]) > 1 for row in rows),
        **_origin(record),
    )  # fmt: skip


def comparison_table(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the cells of a comparison's table."""
    score = f"{record['split']} {score_name(record['score'])} (%)"
    columns = [
        "method",
        score,
        "training (s)",
        "speed-up",
        "to the goal (s)",
        "speed-up",
        "sent by a worker",
    ]
    return [*columns, "inference", "peak memory"], [*map(_cells, record["rows"])]


def _cells(row: dict[str, Any]) -> list[str]:
    speedup, speedup_to = (
        "–" if row[key] is None else times(row[key]) for key in ("speedup", "speedup_to")
    )
    reached = len(finite_values(row["seconds_to"]))
    some = (
        f" ({reached} of {len(row['seconds_to'])})" if 0 < reached < len(row["seconds_to"]) else ""
    )
    return [
        row["name"],
        mean_sd(row["score"]),
        mean_sd(row["seconds"]),
        f"({speedup})" if row["speedup"] and row["costly"] else speedup,
        mean_sd(row["seconds_to"]) + some,
        speedup_to,
        size(row["bytes"]) if row["bytes"] else "–",
        "–" if row["inference"] is None else duration(row["inference"]),
        size(statistics.mean(row["peak_memory_bytes"])),
    ]


def _comparison_charts(record: dict[str, Any], ylabel: str) -> list[Chart]:
    unit, unit_name = time_unit(max(max(row["seconds"]) for row in record["rows"]))
    charts = []
    for key, xlabel, per in (("seconds", f"{unit_name} of training", unit), ("epoch", "epoch", 1)):
        lines = [
            Series(curve["label"], [x / per for x in curve[key]], curve["score"], colour)
            for colour, curve in enumerate(record["curves"])
        ]
        charts.append(
            Chart(f"Score by {'time' if key == 'seconds' else key}", xlabel, ylabel, lines)
        )
    return [chart for chart in charts if chart.has_a_curve()]


def experiment_page(record: dict[str, Any]) -> str:
    """Return the page of a reproduction: tables, notes and charts.

    `record` is the content of experiment.json.
    """
    charts = []
    for chart in (chart for table in record["tables"] for chart in table["charts"]):
        # The n-th solid and the n-th dashed line have the same colour.
        colours = itertools.count(), itertools.count()
        lines = [
            Series(**{**line, "colour": next(colours[line["dashed"]])}) for line in chart["series"]
        ]
        charts.append(Chart(**{**chart, "series": lines}))
    charts = [chart for chart in charts if chart.has_a_curve()]
    facts = {
        "title": record["title"],
        "subtitle": f"scale: {record['scale']} · {record['machine']}",
    }
    return render("experiment.html", **facts, record=record, charts=charts, **_origin(record))
