"""The page of one run, and its curves.png, from its result.json."""

import itertools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gistgnn.report import names, render
from gistgnn.report.charts import DASHES, Chart, Series, draw_charts
from gistgnn.report.run_text import STOPPED
from gistgnn.utils.formats import NBSP, percent, size_unit, time_unit


def run_page(record: dict[str, Any]) -> str:
    """Return the page of a run, from the content of result.json."""
    graph, config, score = record["graph"], record["config"], names.main_score(record)
    about = f"{graph['nodes']:,} nodes, {graph['edges']:,} edges, {graph['features']:,} features"
    method = names.method_label(record)
    scored = [split for split in ("test", "validation") if record[split]]
    return render(
        "run.html",
        title=f"{graph['name']}: {names.model_title(config)}",
        subtitle=f"{method} · {about}, {graph['classes']:,} classes",
        record=record,
        method=method,
        ensemble=config.get("method") == "ensemble",
        score=names.score_name(score),
        reached={split: names.score_text(record, score, record[split][score]) for split in scored},
        stopped=STOPPED.get(record["stopped_by"] or "patience"),
        all_scores=_all_scores(record),
        sent=max(_sent(record), default=0.0),
        charts=_charts(record),
        coverage=_coverage(record["coverage"]),
    )


def plot_curves(record: dict[str, Any], path: Path) -> None:
    """Draw loss and scores against epochs, from the content of result.json, into a PNG file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of a name; the picture has boxes for it
        curves(record).savefig(path, format="png", dpi=120)


def curves(record: dict[str, Any]) -> Figure:
    """Return the figure of `plot_curves`."""
    key = names.main_score(record)
    title = f"{record['graph']['name']}, {names.model_title(record['config'])}, {names.sub_gcns_name(record)}"
    if record["test"]:
        title += f": test {names.score_text(record, key, record['test'][key])}"
    return draw_charts(_charts(record)[:2], title)


def _all_scores(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the scores of the best and of the last round."""
    tables = {
        f"{split}, {when} round": scores[split]
        for when, scores in {"best": record, "last": record["last"]}.items()
        for split in ("test", "validation")
        if scores.get(split)
    }
    keys = names.score_keys(tables.values())
    cells = [[name, *(names.score_text(record, key, table[key]) for key in keys)] for name, table in tables.items()]
    return ["", *map(names.score_name, keys)], cells


def _sent(record: dict[str, Any]) -> list[float]:
    """Return the bytes that one worker has sent at every evaluation; nothing in a run of one process."""
    history = record["history"] if record["communication"] else []
    return [names.bytes_sent(record, entry["round"], entry["step"]) for entry in history]


def _charts(record: dict[str, Any]) -> list[Chart]:
    """Return loss and score against epochs, against time and, if workers send anything, against bytes."""
    history, sent, key = record["history"], _sent(record), names.main_score(record)
    score, scale = names.score_name(key), 100 if names.is_share(record, key) else 1
    kept = next((i for i, entry in enumerate(history) if entry["round"] == record["best_round"]), None)
    seconds = [entry["train_seconds"] for entry in history]
    second, time_name = time_unit(max(seconds, default=0.0))
    byte, size_name = size_unit(max(sent, default=0.0))
    across = [
        ("epoch", "epoch", [entry["epoch"] for entry in history]),
        ("time", f"{time_name} of training", [value / second for value in seconds]),
        ("bytes", f"{size_name} sent by a worker", [value / byte for value in sent]),
    ]
    charts = []
    for by, xlabel, x in across if any(sent) else across[:2]:
        mark = None if kept is None or record["config"].get("method") == "ensemble" else x[kept]
        loss = Series("training loss", x, [entry["loss"] for entry in history], colour=7)
        lines = [
            Series(split, x, [scale * entry[split] for entry in history], i, DASHES[i])
            for i, split in enumerate(("test", "validation"))
        ]
        ylabel = f"{score} (%)" if scale == 100 else score
        charts.append(Chart(f"Loss by {by}", xlabel, "loss", [loss], mark=mark))
        charts.append(Chart(f"{score[:1].upper()}{score[1:]} by {by}", xlabel, ylabel, lines, mark=mark))
    return charts


def _coverage(coverage: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of the coverage."""
    shares = {int(n): float(share) for n, share in coverage["counts"].items()}
    half, covered = sum(shares.values()) / 2 - 1e-12, itertools.accumulate(shares.values())
    line = Series("share of Θ", list(shares), [100 * share for share in shares.values()], colour=2)
    return {
        "never": f"< 0.01{NBSP}%" if 0 < shares.get(0, 0) < 5e-5 else percent(shares.get(0, 0)),
        "median": next(n for n, share in zip(shares, covered, strict=True) if share >= half),
        "mean": sum(n * share for n, share in shares.items()),
        "chart": Chart("Θ by rounds trained", "rounds trained", "% of the parameters", [line], stems=True),
    }
