"""The page of a comparison, from its comparison.json."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from gistgnn.report.bars import Bar
from gistgnn.report.charts import COLOURS, DASHES, Chart, Series
from gistgnn.report.names import COSTLY, ONE_DEVICE, pooled_inference, score_name
from gistgnn.report.page import render
from gistgnn.utils.formats import (
    NBSP,
    duration,
    finite_or_nan,
    finite_values,
    mean_sd,
    size,
    size_unit,
    time_unit,
    times,
)

_COLOURS = {ONE_DEVICE: COLOURS - 1, "gist": 0, "data-parallel": 1, "local-sgd": 2, "ensemble": 3}  # others: 4

RowRecord = dict[str, Any]


def comparison_page(record: dict[str, Any]) -> str:
    """Return the page of a comparison, from the content of comparison.json."""
    rows = _described(record["rows"])
    baseline = None if record.get("baseline") is None else rows[record["baseline"]]
    scored = [row for row in rows if row["mean"] is not None]
    fast = [row for row in scored if row.get("speedup") and row is not baseline and not _is_costly(row, baseline)]
    graph, score = record.get("graph") or {}, f"test {score_name(record['score'])}"
    sizes = f" · {graph['nodes']:,} nodes, {graph['edges']:,} edges" if "nodes" in graph else ""
    curves = record.get("curves") or []
    floor = _floor(curves)
    return render(
        "comparison.html",
        title=record["title"],
        subtitle=f"{record['dataset']}{sizes} · {record.get('machine') or 'machine not recorded'}",
        record=record,
        score=score,
        baseline=baseline,
        best=max(scored, key=lambda row: float(row["mean"]), default=None),
        fastest=max(fast, key=lambda row: float(row["speedup"]), default=None) if baseline else None,
        cells=[_cells(row, baseline) for row in rows],
        costly=f"{COSTLY:g}",
        below=f"{record.get('below', 0.5):g}",
        charts=_charts(curves, f"{score} (%)", floor),
        lines=[Series(_name(curve), [], [], *style) for curve, style in zip(curves, _styles(curves), strict=True)],
        cut=floor is not None,
        bars=_bars(rows, score),
        several=any(len(row["score"]) > 1 for row in rows),
    )


def _described(rows: Sequence[RowRecord]) -> list[RowRecord]:
    """Return rows with their name, their score as text, and their means over the seeds; None where there is none."""
    models = ((row["method"] == "ensemble" and _m(row), row.get("detail", "")) for row in rows)
    times = (finite_values(row.get("inference_seconds") or []) for row in rows)
    pooled = pooled_inference(list(zip(models, times, strict=True)))
    described = []
    for row, inference in zip(rows, pooled, strict=True):
        own = {"speedup": None, **row, "name": _name(row), "percent": f"{mean_sd(row['score'])}{NBSP}%"}
        for name, key in (("mean", "score"), ("training", "seconds"), ("memory", "peak_memory_bytes")):
            values = finite_values(row.get(key) or [])
            own[name] = statistics.mean(values) if values else None
        described.append({**own, "inference": inference})
    return described


def _cells(row: RowRecord, baseline: RowRecord | None) -> list[str]:
    """Return the cells of a row of the table."""
    speedup, speedup_to = ("–" if row.get(key) is None else times(row[key]) for key in ("speedup", "speedup_to"))
    seconds_to = row.get("seconds_to") or []
    reached = len(finite_values(seconds_to))
    return [
        row["name"],
        mean_sd(row["score"]),
        mean_sd(row["seconds"]),
        f"({speedup})" if row["speedup"] is not None and _is_costly(row, baseline) else speedup,
        mean_sd(seconds_to) + (f" ({reached} of {len(seconds_to)})" if 0 < reached < len(seconds_to) else ""),
        speedup_to,
        size(row["bytes"]) if row.get("bytes") else "–",
        "–" if row["inference"] is None else duration(row["inference"]),
        "–" if row["memory"] is None else size(row["memory"]),
    ]


def _name(row: RowRecord) -> str:
    """Return the name of a row or a curve."""
    m = _m(row)
    return f"{row['label']}, m{NBSP}={NBSP}{m}" if m > 1 and "m =" not in row["label"] else row["label"]


def _is_costly(row: RowRecord, baseline: RowRecord | None) -> bool:
    """Whether the speed-up of a row costs more than `COSTLY` points of the score."""
    if baseline is None or row["mean"] is None or baseline["mean"] is None:
        return False
    return bool(row["mean"] < baseline["mean"] - COSTLY)


def _charts(curves: Sequence[RowRecord], ylabel: str, floor: float | None) -> list[Chart]:
    """Return the scores against time, epochs and, of methods that send anything, bytes."""
    unit, unit_name = time_unit(_largest(curves, "seconds"))
    scale, scale_name = size_unit(_largest(curves, "bytes"))
    across = [
        ("seconds", "Score by time", f"{unit_name} of training", unit),
        ("epoch", "Score by epoch", "epoch", 1),
        ("bytes", "Score by bytes", f"{scale_name} sent by a worker", scale),
    ]
    charts = []
    for key, title, xlabel, per in across:
        series = [
            Series(_name(curve), [finite_or_nan(x) / per for x in curve[key]], curve["score"], *style)
            for curve, style in zip(curves, _styles(curves), strict=True)
            if key != "bytes" or any(curve.get("bytes") or [])
        ]
        if series:
            charts.append(Chart(title, xlabel, ylabel, series, floor=floor))
    return charts


def _floor(curves: Sequence[RowRecord]) -> float | None:
    """Return where the vertical axis begins to tell the last scores apart; None: at the lowest score."""
    scores = [values for curve in curves if (values := finite_values(curve["score"]))]
    if not scores:
        return None
    last = [values[-1] for values in scores]
    floor = min(last) - max(2 * (max(last) - min(last)), 3)
    return floor if floor > min(map(min, scores)) else None


def _largest(curves: Sequence[RowRecord], key: str) -> float:
    return max((value for curve in curves for value in finite_values(curve.get(key) or [])), default=0.0)


def _styles(rows: Sequence[RowRecord]) -> list[tuple[int, int]]:
    """Return colours by method, and dashes by m; the smallest m has a solid line."""
    kinds = [ONE_DEVICE if row["method"] == "gist" and _m(row) == 1 else str(row["method"]) for row in rows]
    dashes = [sorted({_m(other) for other, its in zip(rows, kinds, strict=True) if its == kind}) for kind in kinds]
    return [
        (_COLOURS.get(kind, 4), order.index(_m(row)) % len(DASHES))
        for row, kind, order in zip(rows, kinds, dashes, strict=True)
    ]


def _m(row: RowRecord) -> int:
    return int(row.get("sub_gcns") or 1)


def _bars(rows: Sequence[RowRecord], score: str) -> list[tuple[str, list[Bar]]]:
    """Return the titles and bars of the means; rows without a mean have no bar."""
    kinds: list[tuple[str, str, Callable[[float], str]]] = [
        (score.capitalize(), "mean", lambda value: f"{value:.2f} %"),
        ("Training", "training", duration),
        ("Inference, one pass over the graph", "inference", duration),
        ("Peak memory", "memory", size),
    ]
    groups = []
    for title, key, text in kinds:
        shown = [(row, style) for row, style in zip(rows, _styles(rows), strict=True) if row[key] is not None]
        longest = max((row[key] for row, _ in shown), default=1) or 1
        bars = [Bar(row["name"], text(row[key]), row[key] / longest, colour) for row, (colour, _) in shown]
        same = key == "inference" and len({row[key] for row, _ in shown}) == 1  # then there is nothing to compare
        if bars and not same:
            groups.append((title, bars))
    return groups
