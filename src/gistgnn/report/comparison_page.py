"""The page of a comparison, from its comparison.json."""

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from gistgnn.report.blocks import DASHES, Bar, Bars, Block, Charts, Code, Headline, Side, Table, Text
from gistgnn.report.charts import Series, line_chart
from gistgnn.report.formats import NBSP, duration, finite, known, mean_sd, size, size_unit, time_unit, times
from gistgnn.report.page import Page, Section
from gistgnn.report.words import COSTLY

_COLOURS = {"one device": 7, "gist": 0, "data-parallel": 1, "local-sgd": 2, "ensemble": 3}
_OTHER = 4
_SCORES = {"accuracy": "test accuracy", "f1_micro": "test micro F1"}

Row = dict[str, Any]


def comparison_page(record: dict[str, Any]) -> Page:
    """Return the page of a comparison.

    Args:
        record: what comparison.json holds.
    """
    rows = record["rows"]
    graph = record.get("graph") or {}
    sizes = f" · {graph['nodes']:,} nodes, {graph['edges']:,} edges" if "nodes" in graph else ""
    about = [Text(note) for note in record.get("notes") or []]
    sections = [
        Section("", [*_result(record), _table(record)]),
        Section("Score as it trains", _curves(record)),
        Section("Side by side", [_bars(record)] if rows else []),
        Section("Notes", about),
        Section("How to run it again", [Code(record["command"])] if record.get("command") else []),
        Section("Configuration", [Code(json.dumps(record.get("config", {}), indent=2, ensure_ascii=False))]),
    ]
    subtitle = f"{record['dataset']}{sizes} · {record.get('machine') or 'machine not recorded'}"
    return Page(record["title"], subtitle, [section for section in sections if section.blocks])


def name_of(row: Row) -> str:
    """What a row or a curve is called."""
    m = row.get("sub_gcns") or 1
    return f"{row['label']}, m{NBSP}={NBSP}{m}" if m > 1 and "m =" not in row["label"] else row["label"]


def _result(record: dict[str, Any]) -> list[Block]:
    """The best trade: the best score, and the fastest row that costs no more than a point."""
    score, baseline = _SCORES[record["score"]], _baseline(record)
    scored = [row for row in record["rows"] if known(row["score"])]
    if not scored:
        return [Headline("No score", "no run reached an evaluation")]
    best = max(scored, key=_mean_score)
    words = f"{score} of {name_of(best)}, the best score here"
    if baseline is not None and baseline is not best and best.get("speedup"):
        words += f", {times(best['speedup'])} as fast as {name_of(baseline)} ({_percents(baseline)})"
    words += "."
    fast = [row for row in scored if row.get("speedup") and row is not baseline and not _loses(row, baseline)]
    fastest = max(fast, key=lambda row: float(row["speedup"]), default=None)
    if baseline is not None and fastest is not None and fastest is not best:
        near = f"The fastest that loses no more than {COSTLY:g} point"
        words += f" {near}: {name_of(fastest)}, {times(fastest['speedup'])} as fast ({_percents(fastest)})."
    return [Headline(_percents(best), words)]


def _percents(row: Row) -> str:
    return f"{mean_sd(row['score'])}{NBSP}%"


def _baseline(record: dict[str, Any]) -> Row | None:
    """The row that speed-ups are to."""
    index = record.get("baseline")
    return None if index is None else record["rows"][index]


def _mean_score(row: Row) -> float:
    return statistics.mean(known(row["score"]))


def _loses(row: Row, baseline: Row | None) -> bool:
    """Whether a row's speed-up costs more than a point."""
    if baseline is None or not known(row["score"]) or not known(baseline["score"]):
        return False
    return _mean_score(row) < _mean_score(baseline) - COSTLY


def _table(record: dict[str, Any]) -> Table:
    baseline, below = _baseline(record), f"{record.get('below', 0.5):g}"
    rows = [_cells(row, baseline) for row in record["rows"]]
    columns = [
        "method",
        f"{_SCORES[record['score']]} (%)",
        "training (s)",
        "speed-up",
        "to the goal (s)",
        "speed-up",
        "sent by a worker",
        "inference",
        "peak memory",
    ]
    note = "Mean ± standard deviation over the seeds. "
    if baseline is not None:
        note += (
            f"Speed-ups are to {name_of(baseline)}; one that costs more than {COSTLY:g} point is in parentheses. "
            f"The goal is {below} points below its score; how many seeds reached it, if not all, is in parentheses."
        )
    return Table(columns, rows, "Methods", note)


def _cells(row: Row, baseline: Row | None) -> list[str]:
    speedup, to = ("–" if row.get(key) is None else times(row[key]) for key in ("speedup", "speedup_to"))
    inference, memory = known(row.get("inference_seconds") or []), known(row.get("peak_memory_bytes") or [])
    return [
        name_of(row),
        mean_sd(row["score"]),
        mean_sd(row["seconds"]),
        f"({speedup})" if row.get("speedup") is not None and _loses(row, baseline) else speedup,
        _reached(row.get("seconds_to") or []),
        to,
        size(row["bytes"]) if row.get("bytes") else "–",
        duration(statistics.mean(inference)) if inference else "–",
        size(statistics.mean(memory)) if memory else "–",
    ]


def _reached(seconds: Sequence[float | None]) -> str:
    """Seconds of those seeds that got there, and how many did not."""
    there = len(known(seconds))
    if not there:
        return "–"
    return mean_sd(seconds) + (f" ({there} of {len(seconds)})" if there < len(seconds) else "")


def _curves(record: dict[str, Any]) -> list[Block]:
    curves = record.get("curves") or []
    if not curves:
        return []
    unit, time_name = time_unit(_largest(curves, "seconds"))
    scale, size_name = size_unit(_largest(curves, "bytes"))
    across = [
        ("seconds", "Score by time", f"{time_name} of training", unit),
        ("epoch", "Score by epoch", "epoch", 1),
        ("bytes", "Score by bytes", f"{size_name} sent by a worker", scale),
    ]
    styles, floor = _styles(curves), _floor(curves)
    charts, ylabel = [], f"{_SCORES[record['score']]} (%)"
    for key, title, xlabel, per in across:
        if not (shown := [i for i, curve in enumerate(curves) if key != "bytes" or any(curve.get("bytes") or [])]):
            continue
        series = [
            Series(name_of(curves[i]), [finite(x) / per for x in curves[i][key]], curves[i]["score"], *styles[i])
            for i in shown
        ]
        charts.append(line_chart(title, series, xlabel, ylabel, floor=floor, legend=False))
    keys = [Series(name_of(curve), [], [], *style).key for curve, style in zip(curves, styles, strict=True)]
    cut = [] if floor is None else [Text("The vertical axes begin near the last scores, to tell these apart.")]
    return [*cut, Charts(charts, keys)]


def _floor(curves: Sequence[Row]) -> float | None:
    """Where the vertical axis begins so that the last scores can be told apart; None: with the lowest score."""
    scores = [there for curve in curves if (there := known(curve["score"]))]
    if not scores:
        return None
    last = [there[-1] for there in scores]
    floor = min(last) - max(2 * (max(last) - min(last)), 3)
    return floor if floor > min(map(min, scores)) else None


def _largest(curves: Sequence[Row], key: str) -> float:
    return max((value for curve in curves for value in known(curve.get(key) or [])), default=0.0)


def _styles(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Colour by method, dashes by m, the smallest m solid."""
    sizes: dict[str, list[int]] = {}
    for row in rows:
        sizes.setdefault(_kind(row), []).append(row.get("sub_gcns") or 1)
    ranks = {kind: sorted(set(all_m)) for kind, all_m in sizes.items()}
    return [
        (_COLOURS.get(kind, _OTHER), ranks[kind].index(row.get("sub_gcns") or 1) % len(DASHES))
        for row in rows
        for kind in [_kind(row)]
    ]


def _kind(row: Row) -> str:
    alone = row["method"] == "gist" and (row.get("sub_gcns") or 1) == 1
    return "one device" if alone else str(row["method"])


def _bars(record: dict[str, Any]) -> Side:
    rows = record["rows"]
    kinds: list[tuple[str, str, Callable[[float], str]]] = [
        (f"{_SCORES[record['score']].capitalize()}", "score", lambda value: f"{value:.2f} %"),
        ("Training", "seconds", duration),
        ("Inference, one pass over the graph", "inference_seconds", duration),
        ("Peak memory", "peak_memory_bytes", size),
    ]
    return Side([bars for title, key, words in kinds if (bars := _bars_of(rows, title, key, words)).bars])


def _bars_of(rows: Sequence[Row], title: str, key: str, words: Callable[[float], str]) -> Bars:
    styles = _styles(rows)
    means = [(row, style, known(row.get(key) or [])) for row, style in zip(rows, styles, strict=True)]
    there = [(row, style, statistics.mean(values)) for row, style, values in means if values]
    longest = max((value for _, _, value in there), default=1) or 1
    return Bars([Bar(name_of(row), value / longest, words(value), style[0]) for row, style, value in there], title)
