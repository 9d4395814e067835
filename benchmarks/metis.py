"""METIS in one step and in two: seconds, edges cut, sizes of the clusters.

python -m benchmarks.metis --dataset synthetic:amazon2m@0.1 --clusters 1500
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.tables import describe_machine, on, table
from gistgnn.graphs import load
from gistgnn.graphs.metis.__main__ import cut, partition


def main() -> None:
    """Cut a graph both ways, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metis", description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", default="synthetic:amazon2m@0.1")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--clusters", type=int, default=1500)
    options = parser.parse_args()
    source, target = load(options.dataset, options.data_root).edge_index.numpy()
    nodes = int(max(source.max(), target.max())) + 1
    keep = source != target
    ones = np.ones(int(keep.sum()), np.int8)
    graph = sp.csr_matrix((ones, (target[keep], source[keep])), (nodes, nodes))
    print(f"# METIS\n\n{on(describe_machine(len(os.sched_getaffinity(0)), 'cpu'))}\n")
    print(f"{options.dataset}: {nodes:,} nodes, {graph.nnz:,} directed edges, {options.clusters:,} clusters\n")
    rows = [row(name, work, graph, options.clusters) for name, work in (("one step", cut), ("two steps", partition))]
    print(table(["", "seconds", "seconds of all cores", "edges cut, %", "largest cluster, of the mean"], rows))


def row(name: str, work: Callable[[sp.csr_matrix, int, int], Any], graph: sp.csr_matrix, clusters: int) -> list[str]:
    """Cut the graph and return a row."""
    begun, used = time.perf_counter(), sum(os.times()[:4])
    of = work(graph, clusters, 0)
    seconds, all_cores = time.perf_counter() - begun, sum(os.times()[:4]) - used
    apart = of.repeat(np.diff(graph.indptr)) != of[graph.indices]
    largest = np.bincount(of, minlength=clusters).max() * clusters / graph.shape[0]
    return [name, f"{seconds:.1f}", f"{all_cores:.1f}", f"{100 * apart.mean():.2f}", f"{largest:.2f}"]


if __name__ == "__main__":
    main()
