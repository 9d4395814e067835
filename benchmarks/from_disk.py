"""An epoch from the disk, with a cold and with a warm cache, beside an epoch of the same graph in memory.

    python -m benchmarks.from_disk FOLDER --width 256 --sub-gcns 4

FOLDER is one that `gistgnn partition --out` has made; the graph has to fit in memory. Batches are the same in all
three, and so is what is computed: one step of each sub-GCN on each batch. The three take turns. Before a cold epoch the
system is told to drop the folder's files from its cache; how much of them is read from the disk is measured.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.tables import describe_machine, number, on, table
from gistgnn import load
from gistgnn.graphs import CSR, Graph
from gistgnn.graphs.clustering import Clusters
from gistgnn.nn import MODELS
from gistgnn.sampling import Batch, ClusterSampling, whole_graph
from gistgnn.sampling.clusters import ClusterBatches
from gistgnn.settings import Training
from gistgnn.subtrain import backward, begin_step
from gistgnn.utils.process_memory import keep_freed_memory

KINDS = ("memory", "warm", "cold")


def main() -> None:
    """Measure, print the table, and write JSON."""
    options = parse()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    machine = describe_machine(options.threads, "cpu")
    stored = load(options.folder)
    assert stored.cluster_ptr is not None, "give a folder that `gistgnn partition --out` has made"
    setting = f"{options.model} of width {options.width}, m = {options.sub_gcns}, {options.per_batch} clusters a batch"
    print(f"# Epochs from the disk\n\n{on(machine)}; {stored}; {setting}\n", flush=True)
    samplers: dict[str, Any] = {"memory": in_memory(stored, options), "disk": from_disk(stored, options)}
    subs = [make(stored, options) for _ in range(options.sub_gcns)]
    epochs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for number_, kind in enumerate(KINDS * (options.repeat + 1)):  # the first of each warms up
        if kind == "cold":  # pages that are mapped are not dropped
            samplers["disk"] = stored = None
            gc.collect()
            drop(options.folder)
            stored = load(options.folder)
            samplers["disk"] = from_disk(stored, options)
        taken = epoch(samplers["memory" if kind == "memory" else "disk"], subs, options.steps)
        print(f"{kind}: {taken['seconds']:.2f} s", file=sys.stderr, flush=True)
        if number_ >= len(KINDS):
            epochs[kind].append(taken)
    report(epochs)
    if options.json:
        record = {"machine": machine, "arguments": sys.argv[1:], "epochs": epochs}
        options.json.write_text(json.dumps(record, indent=1))


def in_memory(stored: Graph, options: argparse.Namespace) -> ClusterBatches:
    """Return the batches of a copy of the graph in memory, whose clusters are ranges of nodes as well."""
    x = torch.empty(stored.x.shape)
    for start in range(0, len(x), 2**18):
        x[start : start + 2**18] = stored.x[start : start + 2**18]
    masks = (stored.train, stored.val, stored.test)
    graph = Graph(
        x,
        CSR(stored.edges.rowptr.clone(), stored.edges.col.clone()),
        stored.y.clone(),
        *masks,
        stored.num_classes,
        stored.name,
    )
    assert stored.cluster_ptr is not None
    clusters = Clusters(torch.arange(graph.num_nodes), stored.cluster_ptr)
    return ClusterBatches(whole_graph(graph), clusters, options.per_batch, precompute=options.precompute)


def from_disk(stored: Graph, options: argparse.Namespace) -> ClusterBatches:
    """Return the same batches, read from the files."""
    assert stored.num_clusters
    sampling = ClusterSampling(stored.num_clusters, options.per_batch, precompute=options.precompute)
    return sampling.sampler(whole_graph(stored), 0)


def make(graph: Graph, options: argparse.Namespace) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a sub-GCN and its optimiser."""
    width = options.width // options.sub_gcns
    sub = MODELS[options.model](graph.num_features, (width, width), graph.num_classes, norm="layer", dropout=0.5)
    return sub, torch.optim.Adam(sub.parameters(), 0.001, fused=True)


def epoch(
    sampler: ClusterBatches, subs: list[tuple[nn.Module, torch.optim.Optimizer]], steps: int | None
) -> dict[str, Any]:
    """Train an epoch, or some of its steps; return its seconds and the bytes that were read from the disk."""
    training, read, start = Training(epochs=1), bytes_read(), time.perf_counter()
    for batch in counted(sampler, steps):
        if not batch.loss_nodes.numel():
            continue
        for sub, optimizer in subs:
            begin_step(optimizer, 0.001)
            backward(sub, batch, training)
            optimizer.step()
    return {"seconds": time.perf_counter() - start, "read": bytes_read() - read}


def counted(sampler: ClusterBatches, steps: int | None) -> Iterator[Batch]:
    """Yield the batches of the first epoch, or of some steps of it."""
    return sampler.batches(0, min(steps or sampler.steps_per_epoch, sampler.steps_per_epoch))


def bytes_read() -> int:
    """Return the bytes that this process has had read from the disk."""
    return int(Path("/proc/self/io").read_text().split("read_bytes: ")[1].split()[0])


def drop(folder: Path) -> None:
    """Ask the system to drop the files of a folder from its cache."""
    for path in folder.rglob("*.npy"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def report(epochs: dict[str, list[dict[str, Any]]]) -> None:
    """Print the table."""
    rows = []
    for kind in KINDS:
        seconds = [taken["seconds"] for taken in epochs[kind]]
        base = [taken["seconds"] for taken in epochs["memory"]]
        ratio = statistics.median(own / other for own, other in zip(seconds, base, strict=True))
        read = statistics.median(taken["read"] for taken in epochs[kind])
        middle = statistics.median(seconds)
        rows.append([kind, number(middle), number(ratio), number(read / 1e9), number(read / middle / 1e9)])
    print(table(["epoch", "s", "of that in memory", "GB from the disk", "GB/s"], rows))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.from_disk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=Path)
    add("--model", choices=MODELS, default="graphsage")
    add("--width", type=int, default=256, help="of the two hidden layers of the full model")
    add("--sub-gcns", type=int, default=4)
    add("--per-batch", type=int, default=10, help="clusters in a batch")
    add("--steps", type=int, help="of an epoch (default: all)")
    add("--no-precompute", dest="precompute", action="store_false", help="without Āx of the whole graph")
    add("--repeat", type=int, default=3)
    add("--threads", type=int, default=1)
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
