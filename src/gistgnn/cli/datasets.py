"""`gistgnn datasets`: list the named data sets, or describe one data set or file."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from gistgnn.cli.options import add_data_root


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "datasets",
        help="list the data sets, or check one",
        description="List the named data sets; or read one of them, or a file, check it and describe it.",
        example="gistgnn datasets\ngistgnn datasets mine.npz",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("dataset", nargs="?", metavar="NAME|FILE", help="load this one and describe it")
    add_data_root(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs import DATASETS, find, load

    if args.dataset is None:
        rows = [asdict(info) for info in DATASETS.values()]
        for row in rows:
            del row["source"]  # internal to the readers
        _list(rows, args.json)
        return 0
    known, graph = find(args.dataset), load(args.dataset, args.data_root)
    facts = {"name": graph.name, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    facts |= {"classes": graph.num_classes, "task": "multi-label" if graph.multi_label else "single-label"}
    facts |= {split: int(getattr(graph, split).sum()) for split in ("train", "val", "test")}
    facts |= {"about": known.description, "split": known.split} if known else {}
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    for key, value in facts.items():
        print(f"{key:>9}  {value:,}" if isinstance(value, int) else f"{key:>9}  {value}")
    return 0


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
