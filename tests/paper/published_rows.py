"""The paper's own numbers, in the form of the results of runs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gistgnn.compare import Row, RunStore
from gistgnn.paper.appendix_b import AppendixB
from gistgnn.paper.large_graphs import GroupKey, Line, RunGroup, Trained
from gistgnn.paper.published import SUB_GCNS, TABLE2_REDDIT, TABLE3, TABLE3_WIDTHS, TABLE4, WORKERS, Published
from gistgnn.paper.table2 import LargeGraphs
from gistgnn.runs import RunConfig

Groups = dict[GroupKey, RunGroup]
REACHED, FIRST_AT = 88.86, 10_000  # the wide model's F1 with m = 8, and when one device comes to it (section 5.2)


def row(method: str, m: int, score: float, seconds: float, speedup: float = 1.0) -> Row:
    return Row(method, m, (score,), (seconds,), speedup, 0.0, (), (0,), (None,), None)


def record(*history: tuple[float, float]) -> dict[str, Any]:
    """Return what is read of a run's record, from the seconds and the F1 of its evaluations."""
    entries = [{"train_seconds": seconds, "test": score / 100} for seconds, score in history]
    return {"graph": {}, "test": {"accuracy": history[-1][1] / 100}, "history": entries}


def group(rows: tuple[Published, ...], *curve: tuple[float, float]) -> RunGroup:
    """Return the group of a baseline and GIST; `curve` is the beginning of the baseline's."""
    seconds = [line.time * {"s": 1, "h": 3600}[line.unit] for line in rows]
    every = zip(SUB_GCNS, rows, seconds, strict=True)
    results = [row("gist", m, line.f1, time, line.speedup) for m, line, time in every]
    first, *others = [(time, line.f1) for time, line in zip(seconds, rows, strict=True)]
    records = [[record(*curve, first)], *([record(end)] for end in others)]
    trained = map(Trained, results, records)
    return RunGroup([Line(("gist", m), results[0], run) for m, run in zip(SUB_GCNS, trained, strict=True)])


def table2(kind: type[LargeGraphs], dataset: str) -> Groups:
    cells = {(dataset, *cell): rows for cell, rows in kind.paper.items()}
    wide = (dataset, "graphsage", 4096, 2)
    return {key: group(rows, *([(FIRST_AT, REACHED)] if key == wide else [])) for key, rows in cells.items()}


def table3(layers: int) -> dict[tuple[int, int], Row]:
    lines = {m: line for (L, m), line in TABLE3.items() if layers == L}
    cells = {(m, d): pair for m, line in lines.items() for d, pair in zip(TABLE3_WIDTHS, line, strict=True)}
    return {(m, d): row("gist", m, pair[0], 3600 * pair[1]) for (m, d), pair in cells.items() if pair}


def table4() -> Groups:
    tables = {"LADIES": TABLE4, "clusters": {L: TABLE2_REDDIT["graphsage", 256, L] for L in TABLE4}}
    return {("reddit", L, batches): group(rows) for batches, paper in tables.items() for L, rows in paper.items()}


def appendix_b(kind: type[AppendixB]) -> Groups:
    """Return the group of Table 6 or 7. The seconds of both are times of training and of inference."""
    pairs = [(method, m, *kind.paper[method][i]) for i, m in enumerate(WORKERS) for method in (kind.rival, "gist")]
    rows = [row("gist", 1, 96.09, 105.78), *(row(*pair) for pair in pairs)]
    lines = [Line((one.method, one.sub_gcns), rows[0], Trained(one, ()), inference=one.time) for one in rows]
    return {("reddit",): RunGroup(lines)}


def changed(groups: Mapping[GroupKey, RunGroup], key: GroupKey, m: int, **values: Any) -> Groups:
    """Return the groups with other values in GIST's row with this m."""
    lines = list(groups[key].lines)
    place = next(i for i, line in enumerate(lines) if line.name == ("gist", m))
    run = lines[place].shown
    lines[place] = replace(lines[place], alone=Trained(replace(run.row, **values), run.records))
    return {**groups, key: RunGroup(lines)}


SCORES, COSTS = {"accuracy": 0.8, "f1_parts": 0.75}, {"peak_memory_bytes": 1, "inference_seconds": 1.0}
RUN = {"graph": {}, "validation": SCORES, "test": SCORES, "train_seconds": 1.0, "rounds": 1, "steps": 1, **COSTS}


class Finished(RunStore):
    """A store in which every run is finished, and all have the same results; `asked` are the runs it was asked for."""

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.asked = list[RunConfig]()

    def run_all(self, configs: Any, label: str) -> list[dict[str, Any]]:
        self.asked += (chosen := list(configs))
        return [self.record(config) for config in chosen]

    def record(self, config: RunConfig) -> dict[str, Any]:
        traffic = {"workers": config.sub_gcns, "up_bytes": 1, "down_bytes": 1}
        history = [{"train_seconds": 1.0, "epoch": 1.0, "test": 0.8}]
        return {**RUN, "config": config.as_dict(), "history": history, "traffic": traffic}
