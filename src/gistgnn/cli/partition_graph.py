"""`gistgnn partition`: cut a graph into clusters before training, and report the quality of the cut."""

import argparse
import json
import time
from typing import Any

from gistgnn.cli.options import CLUSTER_METHODS, add_data_options, seed
from gistgnn.errors import printable


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "partition",
        help="cut a graph into clusters",
        description="Cut a graph into clusters, keep them for later runs, and say how good the cut is.",
        example="gistgnn partition --dataset cora --clusters 50",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    add_data_options(parser, default="digits")
    parser.add_argument("--clusters", type=int, required=True, metavar="C", help="number of clusters c")
    parser.add_argument("--method", choices=CLUSTER_METHODS, default="metis", help="(default: metis)")
    parser.add_argument("--inductive", action="store_true", help="cut the subgraph of the training nodes")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the later run (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else on standard output")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs import load
    from gistgnn.graphs.clustering import cluster
    from gistgnn.sampling import training_subgraph, whole_graph
    from gistgnn.utils.console import spinner

    graph = load(args.dataset, args.data_root)
    batch = training_subgraph(graph) if args.inductive else whole_graph(graph)
    start, edges = time.perf_counter(), batch.csr
    with spinner(f"clustering {graph.name}", shown=True):
        clusters = cluster(edges, len(batch.x), args.clusters, args.method, args.seed)
    sizes = {key: int(getattr(clusters.sizes, key)()) for key in ("min", "median", "max")}
    facts = {
        "graph": graph.name,
        "inductive": args.inductive,
        "nodes": len(batch.x),
        "edges": edges.num_edges,
        "method": args.method,
        "seed": args.seed,
        "clusters": len(clusters),
        "sizes": sizes,
        "edges_inside": clusters.kept_edges(edges),
        "cache": str(clusters.path) if clusters.path else None,
        "seconds": time.perf_counter() - start,
    }
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"{graph.name}: {facts['nodes']:,} nodes in {len(clusters):,} clusters, in {facts['seconds']:.1f} s")
    print(f"       nodes in a cluster  {sizes['min']:,} to {sizes['max']:,}, median {sizes['median']:,}")
    print(f"    edges inside clusters  {facts['edges_inside']:.1%}")
    print(f"                     kept  {printable(facts['cache'] or 'no')}")
    return 0
