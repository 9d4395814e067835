"""The peak memory of training steps: PyG, on the whole graph and on batches, beside gistgnn.

    python -m benchmarks.memory_table --data-root ../shared/data --most 12

The model is PyG's GraphSAGE of three layers, with Adam. Each cell is a process whose anonymous
memory is limited (`ulimit -d`) to 8, 16 and then 24 GiB, until it can take its steps. PyG's edges
are a CSR tensor, which needs less than an edge_index. Batches are ten clusters, as of PyG's
`ClusterLoader`; gistgnn has the same ones, m = 8, and Θ on disk. PyG asks first, at once, for the
size of its parameters, gradients and Adam's moments: what fails then holds nothing.
"""

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GraphSAGE

from benchmarks.peak_memory import PAUSE, resident
from benchmarks.steps import in_layout
from benchmarks.tables import describe_machine, on, table
from gistgnn import GIST
from gistgnn.graphs import Graph, load
from gistgnn.sampling import Batch, ClusterSampling, whole_graph
from gistgnn.theta import Store

METHODS = ("PyG, whole graph", "PyG, batches", "gistgnn")
LIMITS = (8, 16, 24)
GIB = 2**30
STEPS = 2  # of a model, or of a sub-GCN
CLUSTER = 200  # nodes
OUT = 3  # the exit status of a process that is out of memory
STOPPED = 4  # the exit status of one that needs more than `--most`


def main() -> None:
    """Measure every cell in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory_table", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    graphs = ["amazon-computers", "synthetic:amazon2m@0.02"]
    widths = [1024, 4096, 16384, 32768]
    most_help = "end a cell of PyG that needs more"
    add("--data-root", default="data")
    add("--graphs", nargs="+", default=graphs, metavar="NAME")
    add("--widths", type=int, nargs="+", default=widths, metavar="D")
    add("--most", type=float, default=float("inf"), metavar="GIB", help=most_help)
    options = parser.parse_args()
    machine = on(describe_machine(torch.get_num_threads(), "cpu"))
    print(f"{machine}\n\n{table(['graph', 'width', *METHODS], [])}")
    for name, width in product(options.graphs, options.widths):
        cells = [peak(method, name, width, options.most, options.data_root) for method in METHODS]
        print(f"| {name} | {width:,} | {' | '.join(cells)} |", flush=True)


def peak(*setting: object) -> str:
    """Return the peak in GiB, and the largest limit that was too small."""
    too_small = ""
    for limit in LIMITS:
        process = get_context("spawn").Process(target=cell, args=(limit, *setting))
        most = 0
        process.start()
        while process.is_alive():
            most = max(most, resident(process.pid or 0)[0])
            time.sleep(PAUSE)
        if process.exitcode == 0:
            return f"{most / GIB:.1f}{too_small}"
        if process.exitcode == STOPPED:
            return f"over the limit of --most{too_small}"
        if process.exitcode != OUT:
            raise RuntimeError(f"{setting} ended with status {process.exitcode}")
        too_small = f", out of memory at {limit}"
    return too_small.removeprefix(", ")


def cell(limit: int, method: str, name: str, width: int, most: float, data_root: str) -> None:
    """Take the steps of one cell; end with status 0, OUT or STOPPED."""
    graph = load(name, data_root)
    failed = OUT

    def build(width: int) -> nn.Module:
        return GraphSAGE(graph.num_features, width, 3, graph.num_classes)

    resource.setrlimit(resource.RLIMIT_DATA, (limit * GIB, resource.RLIM_INFINITY))
    try:
        if method == "gistgnn":
            with tempfile.TemporaryDirectory() as folder:
                gist = GIST(build, width, 8, store=Store("disk", Path(folder, "theta")))
                made = batches(graph)
                for round_ in gist.rounds(1):
                    for sub in round_:
                        steps(sub, made, "edge_index")
        else:
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in build(width).parameters())
            torch.empty(4, size)  # parameters, gradients and two moments
            failed = STOPPED if most < limit else OUT
            lower = int(min(limit, most) * GIB)
            resource.setrlimit(resource.RLIMIT_DATA, (lower, resource.RLIM_INFINITY))
            model = build(width)
            made = batches(graph) if "batches" in method else [whole_graph(graph)] * STEPS
            steps(model, made, "CSR")
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        sys.exit(failed)


def batches(graph: Graph) -> list[Batch]:
    """Return batches of clusters."""
    sampling = ClusterSampling(graph.num_nodes // CLUSTER, precompute=False)
    with contextlib.closing(sampling.sampler(whole_graph(graph), 0).batches(0, STEPS)) as made:
        return list(made)


def steps(model: nn.Module, made: list[Batch], layout: str) -> None:
    """Take a step on each batch, as PyG's examples do."""
    optimizer = torch.optim.Adam(model.parameters())
    for batch in made:
        optimizer.zero_grad()
        out = model(batch.x, in_layout(batch, layout))
        F.cross_entropy(out[batch.loss_nodes], batch.y[batch.loss_nodes]).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
