"""The page of one run, and its curves.png, from its result.json."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gistgnn.report import names
from gistgnn.report.bars import Bar, coverage_summary, share_bars
from gistgnn.report.charts import Chart, Series, draw_charts, save_png
from gistgnn.report.page import render
from gistgnn.report.run_text import STOPPED
from gistgnn.utils.formats import duration, size, size_unit, time_unit

_SECONDS = {
    "prepare": "preparing: clusters, first batch",
    "take": "slices of Θ into the sub-GCNs",
    "train": "local steps with their batches",
    "merge": "sub-GCNs back into Θ",
    "evaluate": "evaluation between rounds",
    "save": "checkpoints",
}
_MEMORY = {
    "graph": "graph",
    "theta": "Θ",
    "best": "best Θ so far",
    "moments": "moments of the optimiser",
    "sub_gcns": "sub-GCNs with gradients and moments",
}


def run_page(record: dict[str, Any]) -> str:
    """Return the page of a run, from the content of result.json. A section whose fields are missing is left out."""
    graph, config = record["graph"], record["config"]
    about = f"{graph['nodes']:,} nodes, {graph['edges']:,} edges, {graph['features']:,} features"
    method = names.method_label(record)
    coverage = record.get("coverage")
    return render(
        "run.html",
        title=f"{graph['name']}: {names.model_title(config)}",
        subtitle=f"{method} · {about}, {graph['classes']:,} classes",
        record=record,
        method=method,
        ensemble=config.get("method") == "ensemble",
        score=names.score_name(names.main_score(record)),
        reached={
            split: names.score_text(record, names.main_score(record), record[split][names.main_score(record)])
            for split in ("test", "validation")
            if record.get(split)
        },
        stopped=STOPPED.get(record.get("stopped_by") or "patience"),
        all_scores=_all_scores(record),
        sent=max(_sent(record), default=0.0),
        charts=_charts(record),
        coverage=coverage_summary(coverage) if coverage and coverage["counts"] else None,
        costs=_costs(record),
    )


def plot_curves(record: dict[str, Any], path: Path) -> None:
    """Draw loss and scores against epochs, from the content of result.json, into a PNG file."""
    save_png(curves(record), path)


def curves(record: dict[str, Any]) -> Figure:
    """Return the figure of `plot_curves`."""
    loss, score, *_ = _charts(record)
    best = next((entry for entry in record["history"] if entry["round"] == record["best_round"]), None)
    if best and best["test"] is not None:
        test = names.score_text(record, names.main_score(record), best["test"])
        score = replace(score, mark_label=f"best validation: test {test}")
    title = f"{record['graph']['name']}, {names.model_title(record['config'])}, {names.sub_gcns_name(record)}"
    return draw_charts([loss, score], title)


def _all_scores(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the scores of the best and of the last round."""
    every = {"best": record, "last": record.get("last") or {}}
    keys = names.score_keys(scores["test"] for scores in every.values() if scores.get("test"))
    cells = [
        [f"{split}, {when} round", *(names.score_text(record, key, scores[split][key]) for key in keys)]
        for when, scores in every.items()
        for split in ("test", "validation")
        if scores.get(split)
    ]
    return ["", *map(names.score_name, keys)], cells


def _sent(record: dict[str, Any]) -> list[float]:
    """Return the bytes that one worker has sent at every evaluation; nothing in a run of one process."""
    history = record["history"] if record.get("communication") else []
    return [names.bytes_sent(record, entry["round"], entry["step"]) for entry in history]


def _charts(record: dict[str, Any]) -> list[Chart]:
    """Return loss and score against epochs, against time and, if workers send anything, against bytes."""
    history, score = record["history"], names.score_name(names.main_score(record))
    share = names.is_share(record, names.main_score(record))
    ensemble = record["config"].get("method") == "ensemble"
    kept = next((i for i, entry in enumerate(history) if entry["round"] == record["best_round"]), None)
    loss = [entry["loss"] for entry in history]
    splits = {
        split: [None if entry[split] is None else (100 if share else 1) * entry[split] for entry in history]
        for split in ("test", "validation")
    }
    charts = []
    for by, xlabel, x in _across(record):
        mark = None if kept is None or ensemble else x[kept]
        lines = [Series(split, x, values, i, i) for i, (split, values) in enumerate(splits.items())]
        title, ylabel = f"{score[:1].upper()}{score[1:]} by {by}", f"{score} (%)" if share else score
        charts.append(Chart(f"Loss by {by}", xlabel, "loss", [Series("training loss", x, loss, colour=7)], mark=mark))
        charts.append(Chart(title, xlabel, ylabel, lines, mark=mark))
    return charts


def _across(record: dict[str, Any]) -> list[tuple[str, str, list[float]]]:
    """Return the horizontal axes of the curves: name, label, values."""
    history, sent = record["history"], _sent(record)
    seconds = [entry["train_seconds"] for entry in history]
    unit, unit_name = time_unit(max(seconds, default=0.0))
    scale, scale_name = size_unit(max(sent, default=0.0))
    across = [
        ("epoch", "epoch", [entry["epoch"] for entry in history]),
        ("time", f"{unit_name} of training", [value / unit for value in seconds]),
        ("bytes", f"{scale_name} sent by a worker", [value / scale for value in sent]),
    ]
    return across if any(sent) else across[:2]


def _costs(record: dict[str, Any]) -> list[tuple[str, list[Bar]]]:
    """Return the titles and bars of time and memory."""
    seconds: dict[str, float] = record.get("seconds") or {}
    memory: dict[str, float] = record.get("memory") or {}
    costs = []
    if total := sum(seconds.values()):
        parts = {_SECONDS.get(key, key): value for key, value in seconds.items()}
        costs.append((f"Where {duration(total)} went", share_bars(parts, total, duration, colour=0)))
    if memory:
        peak, known = record["peak_memory_bytes"], sum(memory.values())
        parts = {_MEMORY.get(key, key): value for key, value in memory.items()}
        parts["activations, batches, torch itself"] = max(peak - known, 0)
        bars = share_bars(parts, max(peak, known), size, colour=1)
        costs.append((f"What took {size(peak)} at most", bars))
    return costs
