"""`gistgnn partition`: cut a graph into clusters before training, and report the quality of the cut."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from gistgnn.cli.options import CLUSTER_METHODS, add_data_options, gibibytes, seed
from gistgnn.errors import InputError, printable


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "partition",
        help="cut a graph into clusters",
        description="Cut a graph into clusters, keep them for later runs, and say how good the cut is. With --out, "
        "write the graph of a folder to another one in the order of its clusters, without the graph in memory.",
        example="gistgnn partition --dataset cora --clusters 50\n"
        "gistgnn partition --dataset papers --clusters 4000 --out papers-clusters --memory 4",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    add_data_options(parser, default="digits")
    parser.add_argument("--clusters", type=int, required=True, metavar="C", help="number of clusters c")
    text = "metis; stream, for large graphs; random; with --out also auto: METIS where its memory fits, otherwise "
    text += "stream (default: metis; with --out: auto)"
    parser.add_argument("--method", choices=("auto", *CLUSTER_METHODS), help=text)
    text = "write the graph in the order of its clusters to this folder; it must not exist, or be empty"
    parser.add_argument("--out", type=Path, metavar="DEST", help=text)
    text = "with --out: memory that the process, and METIS's, may take (default: 2)"
    parser.add_argument("--memory", type=gibibytes, metavar="GIB", help=text)
    parser.add_argument("--inductive", action="store_true", help="cut the subgraph of the training nodes")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the later run (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else on standard output")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    start = time.perf_counter()
    facts = _cut_folder(args) if args.out else _cut_in_memory(args)
    facts["seconds"] = time.perf_counter() - start
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    _print(facts)
    return 0


def _cut_in_memory(args: argparse.Namespace) -> dict[str, Any]:
    from gistgnn.graphs import load
    from gistgnn.graphs.clustering import cluster
    from gistgnn.sampling import training_subgraph, whole_graph
    from gistgnn.utils.console import spinner

    if args.method == "auto" or args.memory:
        raise InputError(f"--{'memory' if args.memory else 'method auto'} is for a folder that is written: add --out")
    graph, method = load(args.dataset, args.data_root), args.method or "metis"
    batch = training_subgraph(graph) if args.inductive else whole_graph(graph)
    edges = batch.csr
    with spinner(f"clustering {graph.name}", shown=True):
        clusters = cluster(edges, len(batch.x), args.clusters, method, args.seed)
    return {
        "graph": graph.name,
        "inductive": args.inductive,
        "nodes": len(batch.x),
        "edges": edges.num_edges,
        "method": method,
        "seed": args.seed,
        **_sizes(clusters.sizes.numpy()),
        "edges_inside": clusters.kept_edges(edges),
        "cache": str(clusters.path) if clusters.path else None,
    }


def _cut_folder(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    from gistgnn.graphs.conversion import partition_folder
    from gistgnn.graphs.named import find
    from gistgnn.utils.process_memory import peak_memory_bytes, peak_memory_of_children

    if args.inductive:
        raise InputError(
            "--inductive cuts the training nodes' subgraph, and --out writes the whole graph: leave one out"
        )
    if find(args.dataset) is not None or Path(args.dataset).expanduser().is_file():
        raise InputError(
            f"--out is for a graph folder, and {args.dataset} is none: make one with `gistgnn convert "
            f"{args.dataset} FOLDER`, and give it as --dataset"
        )
    made = partition_folder(
        args.dataset,
        args.out,
        args.clusters,
        method=args.method or "auto",
        memory=args.memory,
        seed=args.seed,
        progress=True,
    )
    peak, of_metis = peak_memory_bytes(torch.device("cpu")), peak_memory_of_children()
    return {
        "graph": made.manifest.name,
        "folder": str(args.out),
        "nodes": made.manifest.nodes,
        "edges": made.manifest.edges,
        "method": made.method,
        "seed": args.seed,
        **_sizes(made.sizes),
        "edges_inside": made.edges_inside,
        "bytes": made.manifest.nbytes,
        "passes": made.seconds,
        "peak_memory_bytes": peak,
        "metis_peak_memory_bytes": of_metis if of_metis > peak else None,  # a process begins with its parent's memory
    }


def _sizes(sizes: Any) -> dict[str, Any]:
    """Return the number of clusters, and how many nodes they have."""
    ordered = sorted(sizes.tolist())
    spread = {"min": ordered[0], "median": ordered[(len(ordered) - 1) // 2], "max": ordered[-1]}
    return {"clusters": len(ordered), "sizes": spread}


def _print(facts: dict[str, Any]) -> None:
    from gistgnn.utils.formats import duration, size

    sizes = facts["sizes"]
    took = f"in {facts['seconds']:.1f} s"
    print(f"{facts['graph']}: {facts['nodes']:,} nodes in {facts['clusters']:,} clusters, {took}")
    print(f"       nodes in a cluster  {sizes['min']:,} to {sizes['max']:,}, median {sizes['median']:,}")
    print(f"    edges inside clusters  {facts['edges_inside']:.1%}")
    if "cache" in facts:
        print(f"                     kept  {printable(facts['cache'] or 'no')}")
        return
    print(f"                   method  {facts['method']}")
    memory = f"{size(facts['peak_memory_bytes'])} of memory"
    if of_metis := facts["metis_peak_memory_bytes"]:
        memory += f", METIS's process {size(of_metis)}"
    print(f"                     took  {duration(sum(facts['passes'].values()))}, {memory}")
    print(f"                  written  {printable(facts['folder'])}, {size(facts['bytes'])}")
