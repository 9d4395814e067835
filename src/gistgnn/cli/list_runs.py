"""`gistgnn list`: the runs in some folders."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_json_option, print_json
from gistgnn.cli.parser import add_command
from gistgnn.cli.process import load_torch
from gistgnn.errors import InputError, printable

if TYPE_CHECKING:
    from gistgnn.runs.listing import Listed


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands,
        "list",
        run,
        "list the runs in folders, with their scores",
        description="List the runs in folders: the graph, the model, the test score, the training time, the date.",
        example="gistgnn list runs/",
    )
    text = "where runs are, at any depth (default: runs)"
    parser.add_argument("folders", type=Path, nargs="*", default=[Path("runs")], metavar="DIR", help=text)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.utils.console import print_table

    for folder in args.folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder: give the one that holds runs, such as runs")
    load_torch()
    from gistgnn.runs.listing import list_runs

    listed = list_runs(args.folders)
    if args.json:
        return print_json(listed)
    if not listed:
        print("\n".join(f"{printable(folder)} holds no runs" for folder in args.folders))
        return 0
    columns = ("run", "graph", "model", "trained by", "test", "training", "date", "state")
    print_table("", columns, map(_cells, listed), left=[name for name in columns if name != "training"])
    return 0


def _cells(run: "Listed") -> list[str]:
    from gistgnn.report.names import score_name
    from gistgnn.utils.formats import duration

    score = "" if run["score"] in (None, "accuracy") else f" {score_name(run['score'])}"
    test = "" if run["test"] is None else f"{run['test']:.4f}{score}"
    seconds = "" if run["train_seconds"] is None else duration(run["train_seconds"])
    state = "" if run["state"] == "finished" else run["state"]
    if run["rounds"] is not None and state in ("interrupted", "unfinished"):
        state += f", round {run['rounds']:,}"
    described = [run[name] or "" for name in ("folder", "graph", "model", "method")]
    return [*described, test, seconds, (run["date"] or "")[:16].replace("T", " "), state]
