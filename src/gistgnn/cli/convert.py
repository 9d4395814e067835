"""`gistgnn convert`: write a graph of any size to a folder, from which it is read where it lies."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_data_root, gibibytes
from gistgnn.errors import printable

if TYPE_CHECKING:
    from gistgnn.graphs.conversion import Converted

_DTYPES = ("float32", "float16")  # as in gistgnn.graphs.folder_writing, which imports torch


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "convert",
        help="write a graph of any size to a folder",
        description="Write a graph to a folder of plain arrays that --dataset takes. The graph may be larger than the "
        "memory. If the command is killed, nothing is left at DEST; run it again.",
        example="gistgnn convert edges.csv big --nodes nodes.csv --undirected --memory 4\n"
        "gistgnn convert synthetic:papers100m@0.01 big",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    text = "a data set's name, a .npz or .pt, a folder of OGB's raw files, or a table of edges (.csv, .csv.gz, "
    parser.add_argument("source", metavar="SOURCE", help=f"{text}.parquet, or a folder of these)")
    parser.add_argument("folder", type=Path, metavar="DEST", help="the folder to make; it must not exist, or be empty")
    text = "for a table of edges: the table of nodes, with the columns y, split and the features"
    parser.add_argument("--nodes", type=Path, metavar="TABLE", help=text)
    text = "type of the features in the folder (default: float32)"
    parser.add_argument("--dtype", choices=_DTYPES, default="float32", help=text)
    text = "add the reverse of every edge (default: only for OGB's raw files, as in the data sets of this name)"
    parser.add_argument("--undirected", action=argparse.BooleanOptionalAction, default=None, help=text)
    text = "memory that the process may take, beside the pages of mapped files (default: 2)"
    parser.add_argument("--memory", type=gibibytes, metavar="GIB", help=text)
    add_data_root(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else on standard output")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs.conversion import convert

    made = convert(
        args.source,
        args.folder,
        nodes=args.nodes,
        dtype=args.dtype,
        undirected=args.undirected,
        memory=args.memory,
        data_root=args.data_root,
        progress=True,
    )
    facts = _facts(made, args.folder)
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    _print(facts)
    return 0


def _facts(made: "Converted", folder: Path) -> dict[str, Any]:
    import torch

    from gistgnn.utils.process_memory import peak_memory_bytes

    manifest = made.manifest
    return {
        "graph": manifest.name,
        "folder": str(folder),
        "nodes": manifest.nodes,
        "edges": manifest.edges,
        "features": manifest.features,
        "classes": manifest.classes,
        "task": manifest.task,
        "x": manifest.arrays["x"].dtype,
        "bytes": manifest.nbytes,
        "seconds": made.seconds,
        "peak_memory_bytes": peak_memory_bytes(torch.device("cpu")),
    }


def _print(facts: dict[str, Any]) -> None:
    from gistgnn.utils.formats import duration, size

    print(f"{facts['graph']}: {facts['nodes']:,} nodes and {facts['edges']:,} edges in {printable(facts['folder'])}")
    print(f"   features  {facts['features']:,} as {facts['x']}")
    print(f"    on disk  {size(facts['bytes'])}")
    print(f"       took  {duration(sum(facts['seconds'].values()))}, {size(facts['peak_memory_bytes'])} of memory")
