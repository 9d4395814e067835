"""`gistgnn list`: the runs in some folders, finished or not."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gistgnn.cli.options import add_command, add_shared, print_json
from gistgnn.cli.process import load_torch
from gistgnn.errors import InputError, printable
from gistgnn.report.names import method_label, model_of, score_name
from gistgnn.utils.formats import duration

# What --json has of a run beside its folder; None stands for what is not known. The state is
# "finished", "interrupted", "diverged", "unfinished" or "unreadable".
_FACTS = (
    "state", "rounds", "graph", "model", "method", "score", "test", "validation", "train_seconds",
    "date",
)  # fmt: skip


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands, "list", _run, "list the runs in folders, with their scores",
        takes="[DIR ...]",
        description="List the runs in folders: the graph, the model, the test score, the training "
        "time, the date.",
        example="gistgnn list runs/",
    )  # fmt: skip
    add = parser.add_argument
    add(
        "folders",
        type=Path,
        nargs="*",
        default=[Path("runs")],
        metavar="DIR",
        help="where runs are (default: runs)",
    )
    add_shared(parser, "--json")


def _run(args: argparse.Namespace) -> int:
    from gistgnn.utils.console import print_table

    for folder in args.folders:
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder: give one that holds runs; gistgnn train writes to runs"
            )
    load_torch()
    listed = list_runs(args.folders)
    if args.json:
        return print_json(listed)
    if not listed:
        print("\n".join(f"{printable(folder)} holds no runs" for folder in args.folders))
        return 0
    columns = ("run", "graph", "model", "trained by", "test", "training", "date", "state")
    print_table(
        "", columns, map(_cells, listed), left=[name for name in columns if name != "training"]
    )
    return 0


def list_runs(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the runs in folders, at any depth: of each its folder and `_FACTS`.

    The oldest result comes first. Runs without a result come last.
    """
    from gistgnn.runs.run_folder import CHECKPOINTS
    from gistgnn.storage.checkpoints import Checkpoints
    from gistgnn.storage.record import RESULT

    run_folders = set()
    for folder in folders:
        run_folders |= {result.parent for result in folder.rglob(RESULT)}
        for checkpoints in folder.rglob(CHECKPOINTS):
            if Checkpoints(checkpoints).newest():
                run_folders.add(checkpoints.parent)
    unknown = dict.fromkeys(_FACTS)
    runs = []
    for folder in run_folders:
        facts = _finished(folder) if (folder / RESULT).exists() else _unfinished(folder)
        runs.append({"folder": str(folder), **unknown, **facts})
    return sorted(
        runs, key=lambda run: (run["state"] == "unfinished", run["date"] or "", run["folder"])
    )


def _unfinished(folder: Path) -> dict[str, Any]:
    """Return what the last checkpoint says of the run in a folder."""
    from gistgnn.runs.run_folder import CHECKPOINTS
    from gistgnn.storage.checkpoints import Checkpoints
    from gistgnn.storage.record import Saved

    state = Checkpoints(folder / CHECKPOINTS).newest_state(Saved) or Saved()
    facts: dict[str, Any] = {
        "state": "unfinished",
        "rounds": state.rounds,
        "train_seconds": state.train_seconds,
    }
    for entry in state.history:
        if entry["round"] == state.scores.get("best_round"):
            facts |= {"test": entry["test"], "validation": entry["validation"]}
    return facts


def _finished(folder: Path) -> dict[str, Any]:
    """Return what result.json says of the run in a folder."""
    from gistgnn.runs.run_folder import read_record

    try:
        record = read_record(folder)
    except InputError:
        return {"state": "unreadable"}
    score = record.metric.name
    state = "interrupted" if record.interrupted else "finished"
    return {
        "state": state if record.diverged is None else "diverged",
        "rounds": record.rounds,
        "graph": record.graph.name,
        "model": model_of(record),
        "method": method_label(record),
        "score": score,
        "test": record.test.get(score),
        "validation": record.validation.get(score),
        "train_seconds": record.train_seconds,
        "date": None if record.provenance is None else record.provenance["date"],
    }


def _cells(run: dict[str, Any]) -> list[str]:
    """Return the cells of a run in the table."""
    split = "validation" if run["test"] is None else "test"
    if run[split] is not None:
        score = f"{run[split]:.4f}"
        if run["score"] not in (None, "accuracy"):
            score += f" {score_name(run['score'])}"
        if split == "validation":
            score += " (validation)"
    else:
        score = "" if run["score"] is None else "-"
    seconds = "" if run["train_seconds"] is None else duration(run["train_seconds"])
    state = "" if run["state"] == "finished" else run["state"]
    if run["rounds"] is not None and state in ("interrupted", "unfinished"):
        state += f", round {run['rounds']:,}"
    described = [run[name] or "" for name in ("folder", "graph", "model", "method")]
    return [*described, score, seconds, (run["date"] or "")[:16].replace("T", " "), state]
