"""The comparison of runs that are finished already, from their folders."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gistgnn.compare.comparison import TIMES, Row, rows_of, table_record
from gistgnn.compare.processes import Record
from gistgnn.errors import InputError
from gistgnn.report.names import is_share, main_score, model_title
from gistgnn.runs.run_folder import read_record
from gistgnn.utils.machine import provenance

_COLUMNS = {"method", "sub_gcns"}  # of the table
_NO_MATTER = {"seed", "device", "evaluation", "store", "store_precision", "runner", "standardise"}  # for the result


def compare_runs(folders: Sequence[Path], below: float) -> tuple[list[Row], dict[str, Any]]:
    """Compare runs on one graph. Runs that differ in the seed alone share a row.

    The first row is the baseline: ordinary training of the full model if one of the runs is that, else the first run.

    Returns the rows, and the content of comparison.json. For `below` see `rows_of`.
    """
    records = {folder: _read(folder) for folder in folders}
    groups: dict[str, list[Record]] = {}
    for record in records.values():
        groups.setdefault(json.dumps(_settings(record), sort_keys=True), []).append(record)
    if len(groups) < 2:
        raise InputError(f"there is nothing to compare in {folders[0]}: give the folders of two different runs or more")
    _check_same_graph(records)
    ordered = sorted(groups.values(), key=lambda group: not _is_baseline(group[0]))
    rows = rows_of(ordered, below, _details(ordered))
    own = {
        "machine": "; ".join(dict.fromkeys(map(_machine, records.values()))),
        "provenance": provenance("cpu"),
        "notes": [*_notes(records), TIMES],
        "config": {str(folder): record["config"] for folder, record in records.items()},
    }
    title = f"{len(records)} runs on {ordered[0][0]['graph']['name']}"
    return rows, {**table_record(title, rows, ordered, below), **own}


def _read(folder: Path) -> Record:
    record = read_record(folder)
    if not is_share(record, score := main_score(record)):
        raise InputError(f"the score of {folder} is {score}, but compare shows shares of 100 %: use gistgnn list")
    return record


def _is_baseline(record: Record) -> bool:
    """Whether the run is ordinary training of the full model."""
    config = record["config"]
    return config.get("method", "gist") == "gist" and config["sub_gcns"] == 1 and not config["training"].get("phases")


def _check_same_graph(records: Mapping[Path, Record]) -> None:
    known: dict[tuple[Any, ...], Path] = {}
    for folder, record in records.items():
        graph = record["graph"]
        known.setdefault((graph["name"], graph["nodes"], graph["edges"], graph["classes"]), folder)
    if len(known) > 1:
        ((one, *_), first), ((other, *_), second) = list(known.items())[:2]
        raise InputError(f"{first} is of the graph {one}, {second} of {other}: compare runs on one graph")


def _settings(record: Record) -> dict[str, Any]:
    """Return the settings of a run that decide its result, but for the seed, without the levels of config."""
    config = record["config"]
    model = {key: value for key, value in config["model"].items() if key not in ("name", "hidden")}
    sampler = config.get("sampler") or {"name": "full"}
    text = " ".join(map(str, sampler.values())) if isinstance(sampler, dict) else sampler
    own = {key: value for key, value in config.items() if key not in _NO_MATTER | {"model", "training", "sampler"}}
    return {"model": model_title(config), **model, **config["training"], "sampler": text, **own}


def _details(groups: Sequence[Sequence[Record]]) -> list[str]:
    """Return for every group the settings, beside method and m, that differ between the groups."""
    settings = [_settings(group[0]) for group in groups]
    names = [name for name in dict.fromkeys(name for each in settings for name in each) if name not in _COLUMNS]
    differing = [name for name in names if len({json.dumps(each.get(name)) for each in settings}) > 1]
    return [", ".join(_setting(name, each.get(name)) for name in differing) for each in settings]


def _setting(name: str, value: Any) -> str:
    """Return a setting in a few words; the model and the sampler name themselves."""
    if name in ("model", "sampler"):
        return f"{'sampler ' if name == 'sampler' else ''}{value}"
    shown = {True: "yes", False: "no", None: "default"}.get(value) if isinstance(value, bool | None) else None
    text = json.dumps(value) if isinstance(value, list | dict) else f"{value:g}" if isinstance(value, float) else value
    return f"{name.replace('_', ' ')} {shown or text}"


def _machine(record: Record) -> str:
    return (record.get("provenance") or {}).get("machine") or "a machine that is not recorded"


def _notes(records: Mapping[Path, Record]) -> list[str]:
    """Return what a reader has to know of single runs."""
    notes = []
    for folder, record in records.items():
        if record.get("interrupted"):
            notes.append(f"{folder} was interrupted: its scores and times are those so far.")
        if "diverged" in record:
            notes.append(f"{folder} diverged: {record['diverged']}.")
    if len(set(map(_machine, records.values()))) > 1:
        notes.append("The runs were made on different machines: their times cannot be compared.")
    return notes
