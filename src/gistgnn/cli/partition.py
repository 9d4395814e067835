"""`gistgnn partition`: cut a graph into clusters ahead of training, and say how well that went."""

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import METHODS, add_data_options, natural

if TYPE_CHECKING:
    from gistgnn.graphs import Graph
    from gistgnn.graphs.clusters import Clusters


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("partition", help="cut a graph into clusters", allow_abbrev=False)
    parser.set_defaults(run=run)
    add_data_options(parser, default="digits")
    parser.add_argument("--clusters", type=int, required=True, metavar="C", help="c, how many")
    parser.add_argument("--method", choices=METHODS, default="metis", help="(default: metis)")
    parser.add_argument("--seed", type=natural, default=0, help="the run's, for which it is done (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else on standard output")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs import load
    from gistgnn.graphs.clusters import cluster
    from gistgnn.progress import say, waiting

    graph = load(args.dataset, args.data_root)
    start = time.perf_counter()
    with waiting(f"clustering {graph.name}", shown=True):
        found = cluster(graph.edge_index, graph.num_nodes, args.clusters, args.method, args.seed, say)
    facts = _facts(args, graph, found, time.perf_counter() - start)
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)
    return 0


def _facts(args: argparse.Namespace, graph: "Graph", found: "Clusters", seconds: float) -> dict[str, Any]:
    sizes = found.sizes
    return {
        "graph": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "method": args.method,
        "seed": args.seed,
        "clusters": len(found),
        "sizes": {"min": int(sizes.min()), "median": int(sizes.median()), "max": int(sizes.max())},
        "edges_inside": found.kept_edges(graph.edge_index),
        "seconds": seconds,
        "cache": str(found.path) if found.path else None,
    }


def _print(facts: dict[str, Any]) -> None:
    sizes = facts["sizes"]
    print(f"{facts['graph']}: {facts['nodes']:,} nodes in {facts['clusters']:,} clusters, in {facts['seconds']:.1f} s")
    print(f"       nodes in a cluster  {sizes['min']:,} to {sizes['max']:,}, median {sizes['median']:,}")
    print(f"    edges inside clusters  {facts['edges_inside']:.1%}")
    print(f"                     kept  {facts['cache'] or 'no'}")
