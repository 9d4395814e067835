"""`gistgnn convert`: write a graph of any size to a folder, from which it is read where it lies."""

import argparse
from pathlib import Path
from typing import Any

from gistgnn.cli.options import add_data_root, add_json_option, gibibytes, print_json
from gistgnn.cli.parser import add_command
from gistgnn.errors import printable


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands,
        "convert",
        run,
        "write a graph of any size to a folder",
        description="Write a graph to a folder of plain arrays that --dataset takes. The graph may be larger than the "
        "memory. If the command is killed, nothing is left at DEST; run it again.",
        example="gistgnn convert edges.csv big --nodes nodes.csv --undirected --memory 4\n"
        "gistgnn convert synthetic:papers100m@0.01 big",
    )
    add = parser.add_argument
    text = "a data set's name, a .npz or .pt, a folder of OGB's raw files, or a table of edges (.csv, .csv.gz, "
    add("source", metavar="SOURCE", help=f"{text}.parquet, or a folder of these)")
    add("folder", type=Path, metavar="DEST", help="the folder to make; it must not exist, or be empty")
    text = "for a table of edges: the table of nodes, with the columns y, split and the features"
    add("--nodes", type=Path, metavar="TABLE", help=text)
    text = "type of the features in the folder (default: float32)"
    add("--dtype", choices=("float32", "float16"), default="float32", help=text)
    text = "add the reverse of every edge (default: only for OGB's raw files, as in the data sets of this name)"
    add("--undirected", action=argparse.BooleanOptionalAction, default=None, help=text)
    text = "memory that the process may take, beside the pages of mapped files (default: 2)"
    add("--memory", type=gibibytes, metavar="GIB", help=text)
    add_data_root(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import torch

    from gistgnn.graphs.conversion import convert
    from gistgnn.utils.formats import duration, size
    from gistgnn.utils.process_memory import peak_memory_bytes

    names = ("nodes", "dtype", "undirected", "memory", "data_root")
    made = convert(args.source, args.folder, progress=True, **{name: getattr(args, name) for name in names})
    peak, manifest = peak_memory_bytes(torch.device("cpu")), made.manifest
    names = ("nodes", "edges", "features", "classes", "task")
    facts = {"graph": manifest.name, "folder": str(args.folder), **{name: getattr(manifest, name) for name in names}}
    facts |= {"x": manifest.arrays["x"].dtype, "bytes": manifest.nbytes, "seconds": made.seconds}
    if args.json:
        return print_json({**facts, "peak_memory_bytes": peak})
    print(f"{manifest.name}: {manifest.nodes:,} nodes and {manifest.edges:,} edges in {printable(args.folder)}")
    print(f"   features  {manifest.features:,} as {facts['x']}")
    print(f"    on disk  {size(manifest.nbytes)}")
    print(f"       took  {duration(sum(made.seconds.values()))}, {size(peak)} of memory")
    return 0
