"""Times cutting a batch of clusters out of a graph of Amazon2M's size: 2,449,029 nodes, 61.9 million edges."""

import argparse
import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks.graphs import drawn, in_order
from benchmarks.tables import describe_machine, number, on, percentile, table
from gistgnn.graphs import CSR
from gistgnn.graphs.clustering import Clusters
from gistgnn.sampling import Batch, ClusterBatches
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes

TARGET_MS = 5.0
NEAR = 50  # clusters on each side that count as near


def main() -> None:
    """Measure, print the table and the target, and write JSON."""
    options = parse()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    machine = describe_machine(options.threads, "cpu")
    print(f"# Batches\n\n{on(machine)}\n", flush=True)
    whole, clusters = make_graph(options, np.random.default_rng(options.seed))
    graph = {
        "nodes": whole.x.shape[0],
        "undirected_edges": whole.adj.num_edges // 2,
        "features": options.features,
        "clusters": len(clusters),
    }
    print(
        f"{graph['nodes']:,} nodes, {graph['undirected_edges']:,} undirected edges, {len(clusters):,} clusters, "
        f"{options.clusters_per_batch} in a batch, {options.features} features.\n",
        flush=True,
    )
    rows = [row for precompute in (False, True) for row in measure(whole, clusters, options, precompute)]
    peak = peak_memory_bytes(torch.device("cpu"))
    print_table(rows)
    met = all(row["median_ms"] < TARGET_MS for row in rows if row["what"] == "cut")
    print(f"\nPeak memory of the process: {peak / 2**30:.2f} GiB.\n\n## Targets\n")
    print(f"- {'pass' if met else 'MISS'}: a batch is cut in less than {TARGET_MS:g} ms (median)")
    if options.json:
        record = {"machine": machine, "arguments": sys.argv[1:], "graph": graph, "rows": rows}
        options.json.write_text(json.dumps(record | {"peak_bytes": peak, "target_met": met}, indent=1))


def make_graph(options: argparse.Namespace, rng: np.random.Generator) -> tuple[Batch, Clusters]:
    """Draw a graph with nodes numbered cluster by cluster and every undirected edge in both directions."""
    sizes = np.full(options.clusters, options.nodes // options.clusters)
    sizes[: options.nodes % options.clusters] += 1
    clusters = in_order(sizes)
    ptr = clusters.ptr.numpy()
    one, other = ends(options, sizes, ptr, rng)
    half = sp.coo_matrix((np.ones(len(one), np.int8), (one, other)), (options.nodes, options.nodes)).tocsr()
    del one, other
    both = half + half.T
    del half
    pattern = CSR(torch.from_numpy(both.indptr), torch.from_numpy(both.indices), both.shape)
    x = torch.from_numpy(rng.standard_normal((options.nodes, options.features), dtype=np.float32))
    y = torch.from_numpy(rng.integers(options.classes, size=options.nodes))
    return Batch(x, pattern, y, torch.arange(options.nodes)), clusters


def ends(
    options: argparse.Namespace, sizes: np.ndarray, ptr: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw both ends of every edge: [E] int32 each. Half of the edges between clusters lead to a near cluster."""
    size, nodes = float(sizes.mean()), options.nodes
    inside = drawn(options.edges * options.inside / len(sizes), size * size / 2) * len(sizes)
    near = round(options.edges * (1 - options.inside) / 2)
    one = rng.integers(nodes, size=inside + 2 * near, dtype=np.int32)
    home = np.arange(len(sizes), dtype=np.int32).repeat(sizes)[one[: inside + near]]
    home[inside:] = (home[inside:] + rng.integers(-NEAR, NEAR + 1, size=near, dtype=np.int32)) % len(sizes)
    within = (rng.random(len(home), dtype=np.float32) * sizes[home]).astype(np.int32)
    aimed = (ptr[home] + np.minimum(within, sizes[home] - 1)).astype(np.int32)
    return one, np.concatenate([aimed, rng.integers(nodes, size=near, dtype=np.int32)])


def measure(whole: Batch, clusters: Clusters, options: argparse.Namespace, precompute: bool) -> list[dict[str, Any]]:
    """Measure milliseconds: cutting a batch; computing its operators and the first layer's ĀX, as a step does."""
    start = time.perf_counter()
    sampler = ClusterBatches(whole, clusters, options.clusters_per_batch, options.seed, precompute=precompute)
    with closing(sampler.batches(0, 1)) as first:  # with precompute, the whole graph's ĀX
        prepare(next(first))
    opened = time.perf_counter() - start
    cut, prepared, nodes, edges = [], [], [], []
    # Nothing else runs, so no step hides the time of making a batch.
    with closing(sampler.batches(1, options.batches)) as batches:
        while True:
            start = time.perf_counter()
            if (batch := next(batches, None)) is None:
                break
            cut.append(1e3 * (time.perf_counter() - start))
            nodes.append(batch.x.shape[0])
            edges.append(batch.adj.num_edges)
    with closing(sampler.batches(1, options.batches)) as batches:
        kept = list(batches)
    for batch in kept:
        start = time.perf_counter()
        prepare(batch)
        prepared.append(1e3 * (time.perf_counter() - start))
    size = {"nodes": float(np.mean(nodes)), "edges": float(np.mean(edges)), "open_seconds": opened}
    return [
        {"what": what, "precompute": precompute, **size, **spread(times)}
        for what, times in (("cut", cut), ("operators and ĀX", prepared))
    ]


def prepare(batch: Batch) -> None:
    """Compute what GraphSAGE's first step on the batch computes from its structure and features."""
    _ = batch.features, batch.adj.mean.t(), batch.adj.aggregate("mean", batch.x)


def spread(times: list[float]) -> dict[str, float]:
    """Return the median, the ninth decile and the maximum."""
    return {"median_ms": float(np.median(times)), "p90_ms": percentile(times, 0.9), "max_ms": max(times)}


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the rows in Markdown."""
    head = ["", "ĀX", "median, ms", "p90, ms", "longest, ms", "nodes", "edges", "sampler opened in, s"]
    print(
        table(
            head,
            (
                [
                    row["what"],
                    "of the whole graph, once" if row["precompute"] else "of every batch",
                    *(number(row[key]) for key in ("median_ms", "p90_ms", "max_ms")),
                    f"{row['nodes']:,.0f}",
                    f"{row['edges']:,.0f}",
                    number(row["open_seconds"]),
                ]
                for row in rows
            ),
        )
    )


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    add = parser.add_argument
    add("--nodes", type=int, default=2_449_029)
    add("--edges", type=int, default=61_859_140, help="undirected edges")
    add("--inside", type=float, default=0.75, help="share of the edges within one cluster")
    add("--features", type=int, default=100)
    add("--classes", type=int, default=47)
    add("--clusters", type=int, default=15_000)
    add("--clusters-per-batch", type=int, default=10)
    add("--batches", type=int, default=300)
    add("--threads", type=int, default=os.cpu_count())
    add("--seed", type=int, default=0)
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
