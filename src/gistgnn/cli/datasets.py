"""`gistgnn datasets`: list the named data sets, or describe one data set or file."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gistgnn.cli.options import add_command, add_shared, print_json
from gistgnn.errors import InputError


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands, "datasets", _run, "list the data sets, or check one",
        description="List the named data sets; or read one of them, a file or a graph folder, and describe it.",
        example="gistgnn datasets\ngistgnn datasets mine.npz\ngistgnn datasets big --verify",
    )  # fmt: skip
    parser.add_argument("dataset", nargs="?", metavar="NAME|FILE|FOLDER", help="load this one and describe it")
    parser.add_argument("--verify", action="store_true", help="compare all of a graph folder with its checksums")
    add_shared(parser, "--data-root", "--json")


def _run(args: argparse.Namespace) -> int:
    from gistgnn.graphs import find, load
    from gistgnn.graphs.doubts import note_doubts
    from gistgnn.graphs.folder import Manifest, verify
    from gistgnn.utils.console import spinner

    known = find(args.dataset) if args.dataset else None
    folder = Path(args.dataset or "").expanduser()
    stored = bool(args.dataset) and not known and folder.is_dir()
    if args.verify and not stored:
        raise InputError(f"--verify is for graph folders; {args.dataset or 'no dataset'} is none: leave it out")
    if args.dataset is None:
        return _list(as_json=args.json)
    facts: dict[str, Any] = {}
    if stored:
        manifest = Manifest.read(folder)
        facts = {"x": manifest.arrays["x"].dtype, "bytes": manifest.nbytes}
    if args.verify:
        with spinner("comparing checksums", shown=True):
            verify(folder)
        facts["checksums"] = "all fit"
    graph = load(args.dataset, args.data_root)
    note_doubts(graph)
    task = "regression" if graph.regression else "multi-label" if graph.multi_label else "single-label"
    sizes = {"name": graph.name, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    sizes |= {"classes": graph.num_classes, "task": task}
    facts = sizes | {split: int(getattr(graph, split).sum()) for split in ("train", "val", "test")} | facts
    facts |= {"about": known.description, "split": known.split} if known else {}
    if args.json:
        return print_json(facts)
    for key, value in facts.items():
        print(f"{key:>9}  {value:,}" if isinstance(value, int) else f"{key:>9}  {value}")
    return 0


def _list(*, as_json: bool) -> int:
    from gistgnn.graphs import DATASETS
    from gistgnn.utils.console import print_table

    if as_json:  # `source` is for the readers
        return print_json([{k: v for k, v in asdict(info).items() if k != "source"} for info in DATASETS.values()])
    columns = ("name", "nodes", "edges", "features", "classes", "split")
    cells = []
    for info in DATASETS.values():
        sizes = (f"{getattr(info, key):,}" for key in columns[1:-1])
        cells.append([info.name, *sizes, info.split.split(" (")[0].removesuffix(" with a fixed seed")])
    print_table("", columns, cells, left=["name", "split"])
    print("\nEdges count both directions. `gistgnn datasets NAME` describes one. Your own graph: docs/how-to/data.md")
    return 0
