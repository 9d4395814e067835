"""The page of one run, from its result.json."""

import json
from collections.abc import Callable
from typing import Any

from gistgnn.report.blocks import Bar, Bars, Block, Charts, Code, Details, Facts, Headline, Side, Split, Table, Text
from gistgnn.report.charts import Series, line_chart
from gistgnn.report.coverage_section import coverage_blocks
from gistgnn.report.formats import NBSP, duration, percent, plural, size, size_unit, time_unit
from gistgnn.report.page import Page, Section
from gistgnn.report.words import called, chosen, sent

_SCORES = {"accuracy": "accuracy", "f1_micro": "micro F1", "f1_macro": "macro F1"}
_SECONDS = {
    "prepare": "preparing: clusters, first batch",
    "take": "slices of Θ into the sub-GCNs",
    "train": "local steps, with their batches",
    "merge": "sub-GCNs back into Θ",
    "evaluate": "evaluation between rounds",
    "save": "checkpoints",
}
_MEMORY = {
    "graph": "graph",
    "theta": "Θ",
    "best": "the best Θ so far",
    "moments": "the optimiser's moments",
    "sub_gcns": "sub-GCNs, with gradients and moments",
}


def run_page(record: dict[str, Any]) -> Page:
    """Return the page of a run.

    Args:
        record: what result.json holds; what an older one lacks is left out.
    """
    graph = record["graph"]
    about = f"{graph['nodes']:,} nodes, {graph['edges']:,} edges, {graph['features']:,} features"
    sections = [
        Section("", _result(record)),
        Section("Curves", _curves(record)),
        Section("Partition and coverage", _coverage(record)),
        Section("Time and memory", _costs(record)),
        Section("Configuration", [Code(json.dumps(record["config"], indent=2, ensure_ascii=False))]),
    ]
    return Page(
        f"{graph['name']}: {_model(record['config'])}",
        f"{method(record['config'])} · {about}, {graph['classes']:,} classes",
        [section for section in sections if section.blocks],
    )


def method(config: dict[str, Any]) -> str:
    """How a run of this configuration trains, in words."""
    m, name = config.get("sub_gcns", 1), config.get("method", "gist")
    return f"{called(name, m)}, the full model" if m == 1 else f"{called(name, m)}, m = {m}"


def _model(config: dict[str, Any]) -> str:
    model = config["model"]
    return (
        f"{model['name'].upper() if len(model['name']) <= 3 else model['name']} {'-'.join(map(str, model['hidden']))}"
    )


def _result(record: dict[str, Any]) -> list[Block]:
    score, test, validation = chosen(record), record.get("test"), record.get("validation")
    blocks: list[Block] = []
    if test and validation:
        meaning = (
            f"test {_SCORES[score]} of the model that is best on the validation nodes "
            f"({percent(validation[score])} there), after round {record['best_round']:,} of {record['rounds']:,}"
        )
        if _of_members(record):
            meaning = (
                f"test {_SCORES[score]} of the ensemble ({percent(validation[score])} on the validation nodes); each "
                "member counts as it was at its own best validation score"
            )
        blocks.append(Headline(percent(test[score]), meaning))
    else:
        blocks.append(Headline("No score", "the run ended before its first evaluation"))
    if message := record.get("diverged"):
        reached = "The scores are those reached before." if test else ""
        blocks.append(Text(f"Training diverged: {message}. {reached}".replace("..", "."), notice=True))
    if record.get("stopped_early"):
        blocks.append(
            Text("It stopped early: the validation score had not risen for as many evaluations as asked for.")
        )
    if record.get("evaluation", {}).get("exact") is False:
        blocks.append(Text("The graph was evaluated by parts, so the scores are estimates.", notice=True))
    blocks.append(Facts(_facts(record)))
    if test and validation:
        blocks.append(Details("All scores", _scores(record)))
    return blocks


def _facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    config = record["config"]
    facts = [
        ("training", duration(record["train_seconds"])),
        ("method", method(config)),
        ("rounds", f"{record['rounds']:,}"),
        ("steps, all together", f"{record['steps']:,}"),
        ("peak memory", size(record["peak_memory_bytes"])),
    ]
    if (inference := record.get("inference_seconds")) is not None:
        facts.append(("one pass over the graph", duration(inference)))
    if total := _sent(record):
        facts.append(("sent by a worker", size(total[-1])))
    return [*facts, ("device", str(config.get("device", "cpu"))), ("seed", str(config.get("seed", 0)))]


def _scores(record: dict[str, Any]) -> Table:
    last = record.get("last") or {}
    rows = [
        ("test, best round", record["test"]),
        ("validation, best round", record["validation"]),
        ("test, at the end", last.get("test")),
        ("validation, at the end", last.get("validation")),
    ]
    names = list(_SCORES)
    cells = [[label, *(percent(scores[name]) for name in names)] for label, scores in rows if scores]
    return Table(["", *_SCORES.values()], cells, "All scores")


def _of_members(record: dict[str, Any]) -> bool:
    return record["config"].get("method") == "ensemble"


def _sent(record: dict[str, Any]) -> list[float]:
    """What one worker has sent at every evaluation; empty where nothing is, or it is not known."""
    found = [sent(record, entry["round"], entry["step"]) for entry in record["history"]]
    return found if any(found) else []


def _curves(record: dict[str, Any]) -> list[Block]:
    history = record["history"]
    if not history:
        return [Text("No round was evaluated, so there are no curves.")]
    charts = []
    for by, xlabel, x in _across(record):
        mark = next((at for at, entry in zip(x, history, strict=True) if entry["round"] == record["best_round"]), None)
        mark = None if _of_members(record) else mark
        loss = [Series("training loss", x, [entry["loss"] for entry in history], colour=7)]
        charts.append(line_chart(f"Loss by {by}", loss, xlabel, "loss", mark=mark))
        name = _SCORES[chosen(record)]
        scores = [
            Series(split, x, [None if entry[split] is None else 100 * entry[split] for entry in history], colour, dash)
            for colour, dash, split in ((0, 0, "test"), (1, 1, "validation"))
        ]
        charts.append(line_chart(f"{name.capitalize()} by {by}", scores, xlabel, f"{name} (%)", mark=mark))
    said = "Loss is that of the local steps, scores are those of the whole model between rounds."
    if not _of_members(record):
        said += " The dotted line is the round that was kept."
    return [Text(said), Charts(charts), *_traffic(record)]


def _across(record: dict[str, Any]) -> list[tuple[str, str, list[float]]]:
    """What the curves go against: its name, its label, its values."""
    history = record["history"]
    seconds = [entry["train_seconds"] for entry in history]
    unit, name = time_unit(max(seconds))
    across = [
        ("epoch", "epoch", [entry["epoch"] for entry in history]),
        ("time", f"{name} of training", [value / unit for value in seconds]),
    ]
    if total := _sent(record):
        scale, name = size_unit(max(total))
        across.append(("bytes", f"{name} sent by a worker", [value / scale for value in total]))
    return across


def _traffic(record: dict[str, Any]) -> list[Block]:
    """Where the bytes come from."""
    if not _sent(record):
        return []
    traffic = record["traffic"]
    workers = plural(traffic.get("workers", record["config"]["sub_gcns"]), "worker")
    per_step = traffic.get("bytes_per_step", 0.0)
    often, count = ("step", per_step) if per_step else ("round", traffic["bytes_per_round"])
    each = f"{size(count)} by each in a {often}"
    return [Text(f"Bytes are counted by formula, as if there were {workers}: {each}.")]


def _coverage(record: dict[str, Any]) -> list[Block]:
    splits: list[Block] = [
        Split(_split_label(axis), axis["blocks"] or [axis["features"]]) for axis in record.get("partition") or []
    ]
    coverage = coverage_blocks(record["coverage"]) if record.get("coverage") else []
    if any(len(axis["blocks"]) > 1 for axis in record.get("partition") or []):
        splits.insert(0, Text("The blocks of the last round: the first of every dimension are the first sub-GCN's."))
    return [*splits, *coverage]


def _split_label(axis: dict[str, Any]) -> str:
    blocks = axis["blocks"]
    if len(blocks) < 2:
        return f"{axis['name']}: {axis['features']:,} features, not partitioned"
    few, many = min(blocks), max(blocks)
    width = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    return f"{axis['name']}: {axis['features']:,} features in {len(blocks):,} blocks of {width}"


def _costs(record: dict[str, Any]) -> list[Block]:
    """Where the time went, and the memory."""
    seconds: dict[str, float] = record.get("seconds") or {}
    parts: dict[str, float] = record.get("memory") or {}
    bars = []
    if total := sum(seconds.values()):
        named = {_SECONDS.get(key, key): value for key, value in seconds.items()}
        bars.append(Bars(_shares(named, total, duration, colour=0), f"Where {duration(total)} went"))
    if parts:
        peak, held = record["peak_memory_bytes"], sum(parts.values())
        named = {_MEMORY.get(key, key): value for key, value in parts.items()}
        named["activations, batches, torch itself"] = max(peak - held, 0)
        bars.append(Bars(_shares(named, max(peak, held), size, colour=1), f"What took {size(peak)} at most"))
    return [Side(bars)] if bars else []


def _shares(parts: dict[str, float], total: float, words: Callable[[float], str], colour: int) -> list[Bar]:
    """A bar for each part that is not nothing."""
    return [
        Bar(name, value / total, f"{words(value)} · {_rounded(value / total)}", colour)
        for name, value in parts.items()
        if value > 0
    ]


def _rounded(share: float) -> str:
    return f"< 1{NBSP}%" if share < 0.005 else percent(share, 0)
