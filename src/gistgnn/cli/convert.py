"""`gistgnn convert` and `gistgnn partition`: write a graph to a folder, cut one into clusters."""

import argparse
import logging
import time
from pathlib import Path
from statistics import median_low
from typing import Any

from gistgnn.cli import options, values
from gistgnn.cli.training_options import DIGITS, without_dataset
from gistgnn.errors import InputError, printable

log = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
    """Add the options of both commands."""
    _add_convert(commands)
    _add_partition(commands)


def _add_convert(commands: Any) -> None:
    parser = options.add_command(
        commands, "convert", _convert, "write a graph of any size to a folder",
        takes="SOURCE DEST",
        description="Write a graph to a folder of plain arrays that --dataset takes. The graph may "
        "be larger than the memory. If the command is killed, nothing is left at DEST; run it "
        "again.",
        example="gistgnn convert edges.csv big --nodes nodes.csv --undirected --memory 4\n"
        "gistgnn convert synthetic:papers100m@0.01 big",
    )  # fmt: skip
    add = parser.add_argument
    text = (
        f"a data set's name, a {' or '.join(options.GRAPH_FILES)}, a folder of OGB's raw files, or "
        "a table of edges (CSV or Parquet)"
    )
    add("source", metavar="SOURCE", help=text)
    add(
        "folder",
        type=Path,
        metavar="DEST",
        help="the folder to make; it must not exist, or be empty",
    )
    add(
        "--nodes",
        type=Path,
        metavar="TABLE",
        help="with edges: the nodes' table, of y, split and the features",
    )
    text = "add the reverse of every edge (default: only for OGB's raw files)"
    add("--undirected", action=argparse.BooleanOptionalAction, default=None, help=text)
    add(
        "--memory",
        type=values.memory_size,
        metavar="GIB",
        help="beside the pages of mapped files (default: 2)",
    )
    options.add_shared(parser, "--data-root", "--json")


def _add_partition(commands: Any) -> None:
    parser = options.add_command(
        commands, "partition", _partition, "cut a graph into clusters",
        description="Cut a graph into clusters, keep them for later runs, and say how good the cut "
        "is. With --out, write the graph of a folder to another one in the order of its clusters, "
        "without the graph in memory.",
        example="gistgnn partition --dataset cora --clusters 50\n"
        "gistgnn partition --dataset papers --clusters 4000 --out cut --memory 4",
    )  # fmt: skip
    add = parser.add_argument
    options.add_data_options(parser, default=DIGITS)
    add(
        "--clusters",
        type=int,
        metavar="C",
        help="number of clusters c (default: as many as batches need)",
    )
    text = "(default: metis; with --out auto: METIS where its memory fits, otherwise stream)"
    add("--method", choices=("auto", *options.CLUSTER_METHODS), help=text)
    add(
        "--out",
        type=Path,
        metavar="DEST",
        help="write the graph to this folder, which must not exist, or be empty",
    )
    add(
        "--memory",
        type=values.memory_size,
        metavar="GIB",
        help="with --out: for it and METIS together (default: 2)",
    )
    add("--inductive", action="store_true", help="cut the subgraph of the training nodes")
    add("--seed", type=values.seed, default=0, help="seed of the later run (default: 0)")
    options.add_shared(parser, "--json")


def _convert(args: argparse.Namespace) -> int:
    import torch

    from gistgnn.graphs import load
    from gistgnn.graphs.conversion import convert
    from gistgnn.graphs.doubts import note_doubts
    from gistgnn.utils.formats import duration, size
    from gistgnn.utils.process_memory import peak_memory_bytes

    start = time.perf_counter()
    manifest = convert(
        args.source,
        args.folder,
        nodes=args.nodes,
        undirected=args.undirected,
        memory=args.memory,
        data_root=args.data_root,
        progress=True,
    )
    seconds = time.perf_counter() - start
    peak = peak_memory_bytes(torch.device("cpu"))
    note_doubts(load(args.folder))
    dtype = manifest.arrays["x"].dtype
    if args.json:
        names = ("nodes", "edges", "features", "classes", "task")
        return options.print_json(
            {
                "graph": manifest.name,
                "folder": str(args.folder),
                **{name: getattr(manifest, name) for name in names},
                "x": dtype,
                "bytes": manifest.nbytes,
                "seconds": seconds,
                "peak_memory_bytes": peak,
            }
        )
    print(
        f"{manifest.name}: {manifest.nodes:,} nodes and {manifest.edges:,} edges in "
        f"{printable(args.folder)}"
    )
    print(f"   features  {manifest.features:,} as {dtype}")
    print(f"    on disk  {size(manifest.nbytes)}")
    print(f"       took  {duration(seconds)}, {size(peak)} of memory")
    return 0


def _partition(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    if missing := without_dataset(args):
        if args.out:
            raise InputError("dataset is missing: give the folder of `gistgnn convert` to cut")
        log.warning("%s", missing)
    facts, further_lines = _cut_folder(args) if args.out else _cut_in_memory(args)
    facts["seconds"] = time.perf_counter() - start
    if args.json:
        return options.print_json(facts)
    nodes = f"{facts['nodes']:,} nodes in {facts['clusters']:,} clusters"
    sizes = facts["sizes"]
    print(f"{facts['graph']}: {nodes}, in {facts['seconds']:.1f} s")
    lines = {
        "nodes in a cluster": f"{sizes['min']:,} to {sizes['max']:,}, median {sizes['median']:,}",
        "edges inside clusters": f"{facts['edges_inside']:.1%}",
        **further_lines,
    }
    for name, value in lines.items():
        print(f"{name:>25}  {value}")
    return 0


def _cut_in_memory(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what --json prints of the clusters in memory, and what the text says besides."""
    from gistgnn.graphs import load
    from gistgnn.sampling import ClusterSampling, training_subgraph, whole_graph
    from gistgnn.utils.console import spinner

    if args.method == "auto" or args.memory:
        option = "--memory" if args.memory else "--method auto"
        raise InputError(f"{option} is for a folder that is written: add --out")
    graph = load(args.dataset, args.data_root)
    method = args.method or "metis"
    batch = training_subgraph(graph) if args.inductive else whole_graph(graph)
    edges = batch.csr
    with spinner(f"clustering {graph.name}", shown=True):
        clusters = ClusterSampling(args.clusters, method=method).clusters_of(batch, args.seed)[0]
    if clusters is None:
        raise InputError(
            f"{args.dataset} is in clusters already: give the folder from which it was made"
        )
    facts = {
        "graph": graph.name,
        "inductive": args.inductive,
        "nodes": len(batch.x),
        "edges": edges.num_edges,
        "method": method,
        "seed": args.seed,
        **_sizes(clusters.sizes),
        "edges_inside": clusters.kept_edges(edges),
        "cache": str(clusters.path) if clusters.path else None,
    }
    return facts, {"kept": printable(clusters.path or "no")}


def _cut_folder(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what --json prints of the folder that is written, and what the text says besides."""
    import torch

    from gistgnn.graphs.conversion import partition_folder
    from gistgnn.graphs.named import find
    from gistgnn.utils.formats import size
    from gistgnn.utils.process_memory import peak_memory_bytes

    if args.inductive:
        raise InputError(
            "--inductive cuts the training nodes' subgraph, --out writes the whole graph: leave "
            "one out"
        )
    if find(args.dataset) is not None or Path(args.dataset).expanduser().is_file():
        raise InputError(
            f"--out is for a graph folder: make one with `gistgnn convert {args.dataset} FOLDER`"
        )
    partition = partition_folder(
        args.dataset,
        args.out,
        args.clusters,
        method=args.method or "auto",
        memory=args.memory,
        seed=args.seed,
        progress=True,
    )
    manifest = partition.manifest
    peak = peak_memory_bytes(torch.device("cpu"))
    facts = {
        "graph": manifest.name,
        "folder": str(args.out),
        "nodes": manifest.nodes,
        "edges": manifest.edges,
        "method": partition.method,
        "seed": args.seed,
        **_sizes(partition.sizes),
        "edges_inside": partition.edges_inside,
        "bytes": manifest.nbytes,
        "peak_memory_bytes": peak,
    }
    lines = {
        "method": partition.method,
        "took": f"{size(peak)} of memory",
        "written": f"{printable(args.out)}, {size(manifest.nbytes)}",
    }
    return facts, lines


def _sizes(sizes: Any) -> dict[str, Any]:
    """Return how many clusters there are, and how many nodes they have."""
    nodes = sizes.tolist()
    return {
        "clusters": len(nodes),
        "sizes": {"min": min(nodes), "median": median_low(nodes), "max": max(nodes)},
    }
