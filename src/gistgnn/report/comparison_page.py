"""The page and the table of a comparison, from its comparison.json."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from gistgnn.report import render
from gistgnn.report.charts import COLOURS, DASHES, Chart, Series
from gistgnn.report.names import COSTLY, ONE_DEVICE, score_name
from gistgnn.utils.formats import NBSP, duration, finite_values, mean_sd, size, size_unit, time_unit, times

_COLOURS = {ONE_DEVICE: COLOURS - 1, "gist": 0, "data-parallel": 1, "local-sgd": 2, "ensemble": 3}  # others: 4

_Row = dict[str, Any]


def comparison_page(record: dict[str, Any]) -> str:
    """Return the page of a comparison, from the content of comparison.json."""
    rows, graph, score = _described(record), record["graph"], f"test {score_name(record['score'])}"
    fast = [row for row in rows[1:] if row["speedup"] and not row["costly"]]
    floor = _floor([row["curve"]["score"] for row in rows if row["curve"]["score"]])
    return render(
        "comparison.html",
        title=record["title"],
        subtitle=f"{record['dataset']} · {graph['nodes']:,} nodes, {graph['edges']:,} edges · {record['machine']}",
        record=record,
        score=score,
        baseline=rows[0],
        best=max(rows, key=lambda row: float(row["mean"])),
        fastest=max(fast, key=lambda row: float(row["speedup"]), default=None),
        table=comparison_table(record),
        costly=f"{COSTLY:g}",
        below=f"{record['below']:g}",
        charts=_charts(rows, f"{score} (%)", floor),
        lines=[_line(row, [], []) for row in rows],
        cut=floor is not None,
        rows=rows,
        several=any(len(row["score"]) > 1 for row in rows),
    )


def comparison_table(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the cells of a comparison's table."""
    columns = ["method", f"test {score_name(record['score'])} (%)", "training (s)", "speed-up", "to the goal (s)"]
    return [*columns, "speed-up", "sent by a worker", "inference", "peak memory"], [*map(_cells, _described(record))]


def _described(record: dict[str, Any]) -> list[_Row]:
    """Return the rows with their names, means over the seeds, curves and styles.

    A method has a colour, and its rows differ in their dashes. Rows with the same model share one inference time, the
    median of all of them: they differ in how the model was trained, so their times differ by noise alone.
    """
    rows: list[_Row] = record["rows"]
    kinds = [ONE_DEVICE if (row["method"], row["sub_gcns"]) == ("gist", 1) else row["method"] for row in rows]
    models = [(row["method"] == "ensemble" and row["sub_gcns"], row["detail"]) for row in rows]
    described = []
    for place, (row, kind, model) in enumerate(zip(rows, kinds, models, strict=True)):
        m, mean = row["sub_gcns"], statistics.mean(row["score"])
        same = [other["inference_seconds"] for other, its in zip(rows, models, strict=True) if its == model]
        own = {
            "name": f"{row['label']}, m = {m}" if m > 1 else row["label"],
            "percent": f"{mean_sd(row['score'])}{NBSP}%",
            "mean": mean,
            "costly": mean < statistics.mean(rows[0]["score"]) - COSTLY,
            "training": statistics.mean(row["seconds"]),
            "inference": statistics.median(itertools.chain(*same)) if row["inference_seconds"] else None,
            "memory": statistics.mean(row["peak_memory_bytes"]),
            "colour": _COLOURS.get(kind, 4),
            "dash": DASHES[kinds[:place].count(kind) % len(DASHES)],
            "curve": record["curves"][place],
        }
        described.append({**row, **own})
    return described


def _cells(row: _Row) -> list[str]:
    """Return the cells of a row of the table."""
    speedup, speedup_to = ("–" if row[key] is None else times(row[key]) for key in ("speedup", "speedup_to"))
    reached = len(finite_values(row["seconds_to"]))
    some = f" ({reached} of {len(row['seconds_to'])})" if 0 < reached < len(row["seconds_to"]) else ""
    return [
        row["name"],
        mean_sd(row["score"]),
        mean_sd(row["seconds"]),
        f"({speedup})" if row["speedup"] and row["costly"] else speedup,
        mean_sd(row["seconds_to"]) + some,
        speedup_to,
        size(row["bytes"]) if row["bytes"] else "–",
        "–" if row["inference"] is None else duration(row["inference"]),
        size(row["memory"]),
    ]


def _line(row: _Row, x: Sequence[float], y: Sequence[float]) -> Series:
    return Series(row["name"], x, y, row["colour"], row["dash"])


def _charts(rows: Sequence[_Row], ylabel: str, floor: float | None) -> list[Chart]:
    """Return the scores against time, epochs and, of methods that send anything, bytes."""
    unit, unit_name = time_unit(max(max(row["seconds"]) for row in rows))
    scale, scale_name = size_unit(max(row["bytes"] for row in rows))
    charts = []
    for key, title, xlabel, per in (
        ("seconds", "Score by time", f"{unit_name} of training", unit),
        ("epoch", "Score by epoch", "epoch", 1),
        ("bytes", "Score by bytes", f"{scale_name} sent by a worker", scale),
    ):
        curves = [(row, row["curve"]) for row in rows if key != "bytes" or row["bytes"]]
        lines = [_line(row, [x / per for x in curve[key]], curve["score"]) for row, curve in curves]
        charts.append(Chart(title, xlabel, ylabel, lines, floor=floor))
    return [chart for chart in charts if chart.series]


def _floor(scores: Sequence[Sequence[float]]) -> float | None:
    """Return where the vertical axis begins, to tell the last scores apart; None: at the lowest score."""
    if not scores:
        return None
    last = [curve[-1] for curve in scores]
    floor = min(last) - max(2 * (max(last) - min(last)), 3)
    return floor if floor > min(map(min, scores)) else None
