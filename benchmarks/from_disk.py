"""Training from the disk, with a cold and with a warm cache, beside training in memory.

    python -m benchmarks.from_disk FOLDER --width 256 --sub-gcns 4

FOLDER is one that `gistgnn partition --out` has made; its graph has to fit in memory. Batches are
the same in all three, and so is what is computed: a round of `--steps` steps of each sub-GCN. The
three take turns. Before a cold round the system is told to drop the folder's files from its cache.
How much is read from the disk is measured.
"""

import argparse
import gc
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.command import drop_from_cache
from benchmarks.steps import NEVER, Stopwatch
from benchmarks.tables import describe_machine, number, on, table
from gistgnn import GIST, load
from gistgnn.graphs import CSR, Graph
from gistgnn.nn import MODELS
from gistgnn.sampling import ClusterSampling

KINDS = ("memory", "warm", "cold")


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.from_disk", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("folder", type=Path)
    add("--model", choices=MODELS, default="graphsage")
    add("--width", type=int, default=256, help="of the two hidden layers of the full model")
    add("--sub-gcns", type=int, default=4)
    add("--per-batch", type=int, default=10, help="clusters in a batch")
    add("--steps", type=int, default=40, help="ζ, of a round")
    no_product = "without Āx of the whole graph"
    add("--no-precompute", dest="precompute", action="store_false", help=no_product)
    add("--repeat", type=int, default=3)
    add("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stored = load(options.folder)
    if stored.cluster_ptr is None:
        raise SystemExit(f"{options.folder} has no clusters: make it by `gistgnn partition --out`")
    setting = (
        f"{options.model} of width {options.width}, m = {options.sub_gcns}, "
        f"{options.per_batch} clusters a batch"
    )
    machine = on(describe_machine(options.threads, "cpu"))
    print(f"# Rounds from the disk\n\n{machine}; {stored}; {setting}\n", flush=True)
    graph_in_memory = in_memory(stored)
    rounds: dict[str, list[tuple[float, int]]] = {kind: [] for kind in KINDS}
    for _ in range(options.repeat):
        for kind in KINDS:
            forget = partial(drop_from_cache, options.folder) if kind == "cold" else None
            graph = graph_in_memory if kind == "memory" else load(options.folder)
            rounds[kind].append(trained(graph, options, forget))
            # The system drops no file that is still mapped, so the graph goes before a cold round.
            del graph
            print(f"{kind}: {rounds[kind][-1][0]:.2f} s", file=sys.stderr, flush=True)
            gc.collect()
    print(report(rounds))


def in_memory(stored: Graph) -> Graph:
    """Return a copy of the graph in memory, whose clusters are ranges of nodes as well."""
    edges = CSR(stored.edges.rowptr.clone(), stored.edges.col.clone())
    return replace(
        stored,
        x=stored.x.to(torch.float32, copy=True),
        edges=edges,
        y=stored.y.clone(),
        folder=None,
    )


def trained(
    graph: Graph, options: argparse.Namespace, forget: Callable[[], None] | None
) -> tuple[float, int]:
    """Train two rounds; return the seconds of the second, and the bytes it read from the disk."""
    width = options.width // options.sub_gcns * options.sub_gcns
    watch = Rounds(forget)

    def build(widths: Any) -> nn.Module:
        return MODELS[options.model](
            graph.num_features, widths, graph.num_classes, norm="layer", dropout=0.5
        )

    sampler = ClusterSampling(
        len(graph.cluster_ptr) - 1, options.per_batch, precompute=options.precompute
    )
    GIST(build, (width, width), options.sub_gcns).fit(
        graph,
        epochs=NEVER,
        local_steps=options.steps,
        sampler=sampler,
        evaluate_every=NEVER,
        callbacks=[watch],
        progress=False,
    )
    return watch.seconds[0], watch.read


class Rounds(Stopwatch):
    """Measures the second of two rounds, and the bytes read from the disk in it.

    Between the two it calls `forget`.
    """

    def __init__(self, forget: Callable[[], None] | None) -> None:
        super().__init__(1)
        self._forget = forget
        self.read = 0

    def on_round_end(self, run: Any, loss: float) -> None:
        self.read = bytes_read() - self.read
        if run.round == 1:
            if self._forget:
                self._forget()
            self.read = bytes_read()
        super().on_round_end(run, loss)


def bytes_read() -> int:
    """Return the bytes that this process has had read from the disk."""
    return int(Path("/proc/self/io").read_text().split("read_bytes: ")[1].split()[0])


def report(rounds: dict[str, list[tuple[float, int]]]) -> str:
    """Return the table."""
    rows = []
    in_memory_seconds = [seconds for seconds, _ in rounds["memory"]]
    for kind in KINDS:
        times = [seconds for seconds, _ in rounds[kind]]
        pairs = zip(times, in_memory_seconds, strict=True)
        ratio = statistics.median(seconds / base for seconds, base in pairs)
        read = statistics.median(read for _, read in rounds[kind])
        rows.append([kind, number(statistics.median(times)), number(ratio), number(read / 1e9)])
    return table(["a round", "s", "of that in memory", "GB from the disk"], rows)


if __name__ == "__main__":
    main()
