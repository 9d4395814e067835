"""The comparison of runs that are finished already, from their folders."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gistgnn.compare.comparison import TIMES, Row, rows_of, table_record
from gistgnn.compare.many_runs import Record
from gistgnn.errors import InputError
from gistgnn.report.names import is_share, main_score, method_of, model_title
from gistgnn.runs.run_folder import read_record
from gistgnn.utils.machine import provenance

# They are not named in a row: the table has columns for two, and the others do not decide the result.
_NOT_NAMED = ("seed", "device", "evaluation", "store", "store_precision", "runner", "standardise")
_COLUMNS = ("method", "sub_gcns")


def compare_runs(folders: Sequence[Path], below: float) -> tuple[list[Row], dict[str, Any]]:
    """Compare runs on one graph. Runs that differ in the seed alone share a row.

    The first row is the baseline: ordinary training of the full model if one of the runs is that, else the first run.

    Returns the rows, and the content of comparison.json. For `below` see `rows_of`.
    """
    records, groups = {folder: _read(folder) for folder in folders}, dict[str, list[Record]]()
    for record in records.values():
        groups.setdefault(json.dumps(_settings(record), sort_keys=True), []).append(record)
    if len(groups) < 2:
        raise InputError(f"there is nothing to compare in {folders[0]}: give the folders of two different runs or more")
    first = records[folders[0]]["graph"]
    for folder, record in records.items():
        graph = record["graph"]
        if any(graph[key] != first[key] for key in ("name", "nodes", "edges", "classes")):
            graphs = f"{folders[0]} is of the graph {first['name']}, {folder} of {graph['name']}"
            raise InputError(f"{graphs}: compare runs on one graph")
    ordered = sorted(
        groups.values(), key=lambda group: (method_of(group[0]), group[0]["config"]["sub_gcns"]) != ("gist", 1)
    )
    rows = rows_of(ordered, below, _details([_settings(group[0]) for group in ordered]))
    machines = list(dict.fromkeys(map(_machine, records.values())))
    notes = [note for folder, record in records.items() for note in _notes(folder, record)]
    if len(machines) > 1:
        notes.append("The runs were made on different machines: their times cannot be compared.")
    own = {
        "machine": "; ".join(machines),
        "provenance": provenance("cpu"),
        "notes": [*notes, TIMES],
        "config": {str(folder): record["config"] for folder, record in records.items()},
    }
    title = f"{len(records)} runs on {first['name']}"
    return rows, {**table_record(title, rows, ordered, below), **own}


def _read(folder: Path) -> Record:
    record = read_record(folder)
    if not is_share(record, score := main_score(record)):
        raise InputError(f"the score of {folder} is {score}, but compare shows shares of 100 %: use gistgnn list")
    return record


def _settings(record: Record) -> dict[str, Any]:
    """Return the settings of a run that decide its result, but for the seed, without the levels of config."""
    config = record["config"]
    model = {key: value for key, value in config["model"].items() if key not in ("name", "hidden")}
    sampler = config.get("sampler") or {"name": "full"}
    text = " ".join(map(str, sampler.values())) if isinstance(sampler, dict) else sampler
    own = {key: value for key, value in config.items() if key not in (*_NOT_NAMED, "model", "training", "sampler")}
    return {"model": model_title(config), **model, **config["training"], "sampler": text, **own}


def _details(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return for every row the settings, beside method and m, that differ between the rows."""
    names = dict.fromkeys(name for each in settings for name in each if name not in _COLUMNS)
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


def _notes(folder: Path, record: Record) -> list[str]:
    """Return what a reader has to know of a run."""
    notes = [f"{folder} was interrupted: its scores and times are those so far."] if record.get("interrupted") else []
    return notes + ([f"{folder} diverged: {record['diverged']}."] if "diverged" in record else [])
