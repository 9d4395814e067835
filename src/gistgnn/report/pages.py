"""The pages of a run, a comparison and a reproduction, and a run's curves, from records."""

import itertools
import statistics
from typing import Any

from matplotlib.figure import Figure

from gistgnn.report import names, render
from gistgnn.report.charts import Chart, Series, draw_charts
from gistgnn.report.names import COSTLY, score_name
from gistgnn.storage.record import Record
from gistgnn.utils.formats import (
    NBSP,
    duration,
    finite_values,
    mean_sd,
    percent,
    size,
    time_unit,
    times,
)


def run_page(record: Record) -> str:
    """Return the page of a run."""
    graph = record.graph
    key = record.metric.name
    about = f"{graph.nodes:,} nodes, {graph.edges:,} edges, {graph.features:,} features"
    scores = names.scores_of(record)
    return render(
        "run.html",
        title=f"{graph.name}: {names.model_of(record)}",
        subtitle=f"{names.method_label(record)} · {about}, {graph.classes:,} classes",
        record=record, ensemble=_is_ensemble(record), score=names.score_name(key),
        reached={split: names.score_text(record, key, scores[split][key]) for split in scores},
        facts=names.facts(record), all_scores=_all_scores(record), classes=_classes(record),
        split=names.scored_split(record), charts=_charts(record), coverage=_coverage(record),
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
    """Draw loss and scores of a run against epochs."""
    key = record.metric.name
    split = names.scored_split(record)
    title = f"{record.graph.name}, {names.model_of(record)}, m = {names.sub_gcns_of(record)}"
    if scores := names.scores_of(record).get(split):
        title += f": {split} {names.score_text(record, key, scores[key])}"
    return draw_charts(_charts(record)[:2], title)


def _all_scores(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the scores of the best and of the last round."""
    best = {"test": record.test, "validation": record.validation}
    tables = {
        f"{split}, {when} round": scores[split]
        for when, scores in {"best": best, "last": record.last}.items()
        for split in ("test", "validation")
        if scores.get(split)
    }
    keys = names.score_keys(tables.values())
    cells = [
        [name, *(names.score_text(record, key, table.get(key)) for key in keys)]
        for name, table in tables.items()
    ]
    return ["", *map(names.score_name, keys)], cells


def _classes(record: Record) -> list[list[str]]:
    """Return rows of the scores of the classes, if result.json has them."""
    class_names = record.graph.class_names
    return [
        [
            class_names[number] if class_names else str(number),
            percent(of_class["f1"]),
            f"{of_class['nodes']:,}",
        ]
        for number, of_class in enumerate(record.classes)
    ]


def _charts(record: Record) -> list[Chart]:
    """Return loss and score against epochs, and against time."""
    history = record.history
    key = record.metric.name
    score = names.score_name(key)
    scale = 100 if names.is_share(record, key) else 1
    best = next((i for i, entry in enumerate(history) if entry["round"] == record.best_round), None)
    seconds = [entry["train_seconds"] for entry in history]
    second, time_name = time_unit(max(seconds, default=0.0))
    across = [
        ("epoch", "epoch", [entry["epoch"] for entry in history]),
        ("time", f"{time_name} of training", [value / second for value in seconds]),
    ]
    rounds = record.per_round
    at_rounds = {
        "epoch": [entry["epoch"] for entry in rounds],
        "time": [_scaled(entry["train_seconds"], 1 / second) for entry in rounds],
    }
    charts = []
    for by, xlabel, x in across:
        mark = None if best is None or _is_ensemble(record) else x[best]
        loss = Series("training loss", at_rounds[by], [entry["loss"] for entry in rounds], colour=7)
        lines = [
            Series(
                split,
                x,
                [_scaled(value, scale) for value in names.history_of(record, split)],
                i,
                dashed=bool(i),
            )
            for i, split in enumerate(("test", "validation"))
            if split != "test" or names.scored_split(record) == "test"
        ]
        ylabel = f"{score} (%)" if scale == 100 else score
        charts.append(Chart(f"Loss by {by}", xlabel, "loss", [loss], mark=mark))
        charts.append(
            Chart(f"{score[:1].upper()}{score[1:]} by {by}", xlabel, ylabel, lines, mark=mark)
        )
    return charts


def _scaled(score: float | None, scale: float) -> float | None:
    return None if score is None else scale * score


def _coverage(record: Record) -> dict[str, Any]:
    """Return what the page shows of the coverage.

    Weights that are zero between blocks are not called untrained.
    """
    never = record.coverage.never_trained
    return {
        "all": never == 0,
        "never": f"< 0.01{NBSP}%" if 0 < never < 5e-5 else percent(never),
        "zero": names.is_joined(record),
        "expected": 0 < never < 1 and not _is_ensemble(record),
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
        record=record, score=score, baseline=rows[0],
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
    return charts


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
    facts = {
        "title": record["title"],
        "subtitle": f"scale: {record['scale']} · {record['machine']}",
    }
    return render("experiment.html", **facts, record=record, charts=charts, **_origin(record))
