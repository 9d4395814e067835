"""`gistgnn datasets`: list the named data sets, or describe one data set or file."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_data_root
from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.graphs import Graph


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "datasets",
        help="list the data sets, or check one",
        description="List the named data sets; or read one of them, a file or a graph folder, and describe it.",
        example="gistgnn datasets\ngistgnn datasets mine.npz\ngistgnn datasets big --verify",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("dataset", nargs="?", metavar="NAME|FILE|FOLDER", help="load this one and describe it")
    add_data_root(parser)
    text = "of a graph folder: read all of it, and compare it with its checksums"
    parser.add_argument("--verify", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs import DATASETS, find, load

    if args.verify and (args.dataset is None or find(args.dataset) or not Path(args.dataset).expanduser().is_dir()):
        raise InputError(f"--verify is for graph folders; {args.dataset or 'no dataset'} is none: leave it out")
    if args.dataset is None:
        rows = [asdict(info) for info in DATASETS.values()]
        for row in rows:
            del row["source"]  # internal to the readers
        _list(rows, args.json)
        return 0
    folder = None if find(args.dataset) else Path(args.dataset).expanduser()
    stored = _stored(folder, args.verify) if folder and folder.is_dir() else {}
    known, graph = find(args.dataset), load(args.dataset, args.data_root)
    facts = {"name": graph.name, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    facts |= {"classes": graph.num_classes, "task": _task(graph)}
    facts |= {split: int(getattr(graph, split).sum()) for split in ("train", "val", "test")}
    facts |= stored
    facts |= {"about": known.description, "split": known.split} if known else {}
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    for key, value in facts.items():
        print(f"{key:>9}  {value:,}" if isinstance(value, int) else f"{key:>9}  {value}")
    return 0


def _task(graph: "Graph") -> str:
    return "regression" if graph.regression else "multi-label" if graph.multi_label else "single-label"


def _stored(folder: Path, check: bool) -> dict[str, Any]:
    """Return what there is to say about a graph folder; with ``check`` all of it is read."""
    from gistgnn.graphs.folder import Manifest, verify
    from gistgnn.utils.console import spinner

    manifest = Manifest.read(folder)
    facts: dict[str, Any] = {"x": manifest.arrays["x"].dtype, "bytes": manifest.nbytes}
    if check:
        with spinner("comparing checksums", shown=True):
            verify(folder)
        facts["checksums"] = "all fit"
    return facts


def _list(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from gistgnn.utils.console import print_table

    columns = ("name", "nodes", "edges", "features", "classes", "split")
    cells = []
    for row in rows:
        sizes = (f"{row[key]:,}" for key in ("nodes", "edges", "features", "classes"))
        cells.append([row["name"], *sizes, row["split"].split(" (")[0].removesuffix(" with a fixed seed")])
    print_table("", columns, cells, left=["name", "split"])
    print("\nEdges count both directions. `gistgnn datasets NAME` describes one. Your own graph: docs/how-to/data.md")
