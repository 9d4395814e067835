"""`gistgnn list`: the runs in some folders."""

import argparse
import json
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError, printable


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "list",
        help="list the runs in folders, with their scores",
        description="List the runs in folders: the graph, the model, the test score, the training time, the date.",
        example="gistgnn list runs/",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    text = "where runs are, at any depth (default: runs)"
    parser.add_argument("folders", type=Path, nargs="*", default=[Path("runs")], metavar="DIR", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else on standard output")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.cli.process import load_torch
    from gistgnn.utils.console import print_table

    for folder in args.folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder: give the one that holds runs, such as runs")
    load_torch()
    from gistgnn.runs.listing import list_runs

    listed = list_runs(args.folders)
    if args.json:
        print(json.dumps([{**vars(each), "folder": str(each.folder)} for each in listed], indent=2))
        return 0
    if not listed:
        print("\n".join(f"{printable(folder)} holds no runs" for folder in args.folders))
        return 0
    columns = ("run", "graph", "model", "trained by", "test", "training", "date", "state")
    print_table("", columns, [each.cells for each in listed], left=[name for name in columns if name != "training"])
    return 0
