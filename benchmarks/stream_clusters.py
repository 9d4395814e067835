"""Clusters by stream beside METIS's: edges cut, sizes, seconds and peak memory.

    python -m benchmarks.stream_clusters --data-root data
    python -m benchmarks.stream_clusters --folder papers --clusters 800

Each row is made in a process of its own. Memory is the peak of that process and of METIS's process
together, less what the first one has at its start, when it has read the graph.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from benchmarks.tables import describe_machine, on, table
from gistgnn.graphs import load, streaming
from gistgnn.graphs.clustering import cluster
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.streaming import blocks_of

GRAPHS = {
    "amazon-computers": (50, 500),
    "coauthor-physics": (50, 500),
    "synthetic:reddit@0.1": (50, 500, 1500),
}
METHODS = ("metis", "stream")
HEAD = ["graph", "clusters", "method", "edges cut, %", "of METIS's"]
HEAD += ["largest, of the mean", "seconds", "MiB"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stream_clusters", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--graph", help="one named graph alone, with --clusters")
    parser.add_argument("--folder", type=Path, help="a graph folder, with --clusters")
    parser.add_argument("--clusters", type=int)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options)))
    else:
        cuts(options)


def cuts(options: argparse.Namespace) -> None:
    """Print a row for each graph, number of clusters and method."""
    print(f"# Clusters\n\n{on(describe_machine(1, 'cpu'))}\n")
    print(table(HEAD, []))
    graphs: dict[str, tuple[int, ...]] = GRAPHS
    if options.folder or options.graph:
        graphs = {str(options.folder or options.graph): (options.clusters,)}
    for name, counts in graphs.items():
        for count in counts:
            cut_by_metis = None
            for method in options.methods:
                words = ["--folder" if options.folder else "--graph", name]
                words += ["--clusters", str(count), "--one", method]
                words += ["--data-root", options.data_root]
                row = json.loads(output_of_process(words).splitlines()[-1])
                if method == "metis":
                    cut_by_metis = row["cut"]
                cells = [name, f"{count:,}", method, f"{100 * row['cut']:.1f}"]
                cells.append(f"{row['cut'] / cut_by_metis:.3f}" if cut_by_metis else "—")
                cells += [f"{row['largest']:.3f}", f"{row['seconds']:.1f}", f"{row['mib']:,}"]
                print(f"| {' | '.join(cells)} |", flush=True)


def output_of_process(words: list[str]) -> str:
    """Run this script with some options in a process of its own; return what it prints."""
    command = [sys.executable, "-m", "benchmarks.stream_clusters", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def one(options: argparse.Namespace) -> dict[str, float]:
    """Cut one graph by one method."""
    edges = load(options.folder or options.graph, options.data_root).edges
    start = time.perf_counter()
    with Watched() as watched:
        part = cut(edges, options.clusters, options.one)
    seconds = time.perf_counter() - start
    sizes = np.bincount(part, minlength=options.clusters)
    cut_edges = 0
    for block in blocks_of(edges, 2**19, 2**19):
        cut_edges += int((part[block.source] != part[block.target]).sum())
    return {
        "cut": cut_edges / edges.num_edges,
        "largest": sizes.max() * options.clusters / edges.num_nodes,
        "seconds": seconds,
        "mib": round(watched.peak / 2**20),
    }


class Watched:
    """Watches the memory of this process and of METIS's.

    `peak` has the bytes of both together, less what this process had at the start.
    """

    def __enter__(self) -> "Watched":
        self.peak = 0
        self._bytes_before = psutil.Process().memory_info().rss
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._over.wait(0.02):
            resident = process.memory_info().rss
            for child in process.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    # A child begins as a copy of this process, and counts once it runs METIS.
                    if "metis" in " ".join(child.cmdline()[1:2]):
                        resident += child.memory_info().rss
            self.peak = max(self.peak, resident - self._bytes_before)


def cut(edges: CSR, count: int, method: str) -> npt.NDArray[Any]:
    """Return the cluster of every node."""
    if method == "stream":
        return streaming.stream_clusters(edges, count, 0)
    # With a new cache METIS has to work, and no clusters of an earlier run are read.
    os.environ["GISTGNN_CACHE"] = f"/tmp/gistgnn-no-cache-{os.getpid()}"
    part = cluster(edges, edges.num_nodes, count, "metis", 0).assignment.numpy()
    shutil.rmtree(os.environ["GISTGNN_CACHE"], ignore_errors=True)
    return part


if __name__ == "__main__":
    main()
