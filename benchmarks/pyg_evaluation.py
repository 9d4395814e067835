"""Measures the memory and time of evaluating PyG's models, at once and layer by layer.

    python -m benchmarks.pyg_evaluation [--nodes N] [--edges E] [--limit MIB]

The graph is random, of 16 features and 8 classes; models have three layers and compute the logits
of all nodes. Each method runs in a process of its own.
"""

import argparse
import subprocess
import sys
import threading
import time

import torch
from torch_geometric.nn import models

from benchmarks.pyg_modules import PNA
from gistgnn.evaluation import Evaluation
from gistgnn.sampling import Batch
from gistgnn.utils.process_memory import held_bytes

WIDTHS = {"GCN": 256, "GraphSAGE": 256, "GIN": 256, "GAT": 256, "PNA": 64}


def main() -> None:
    """Run every model in both ways, or one of them in this process."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pyg_evaluation", description=__doc__
    )
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--edges", type=int, default=500_000)
    parser.add_argument(
        "--limit", type=int, default=256, metavar="MIB", help="of evaluation layer by layer"
    )
    parser.add_argument("--only", nargs=2, metavar=("MODEL", "METHOD"))
    options = parser.parse_args()
    if options.only:
        measure(*options.only, options.nodes, options.edges, options.limit * 2**20)
        return
    for name in WIDTHS:
        for method in ("whole", "layers"):
            words = [*sys.argv[1:], "--only", name, method]
            command = [sys.executable, "-m", "benchmarks.pyg_evaluation", *words]
            subprocess.run(command, check=True)


def measure(name: str, method: str, nodes: int, edges: int, limit: int) -> None:
    """Evaluate a model twice; print the peak of memory, and the seconds of the second time.

    The peak is what the evaluation needs beyond the graph and the model.
    """
    torch.manual_seed(0)
    x = torch.randn(nodes, 16)
    edge_index = torch.randint(nodes, (2, edges))
    no_nodes = torch.arange(0)
    batch = Batch(x, edge_index, torch.zeros(nodes), no_nodes)
    extra = {"GAT": {"heads": 2}, "PNA": PNA}.get(name, {})
    model = getattr(models, name)(16, WIDTHS[name], 3, 8, norm="batch", **extra).eval()
    peak = 0
    finished = threading.Event()
    before = held_bytes()

    def watch() -> None:
        nonlocal peak
        while not finished.wait(0.001):
            peak = max(peak, held_bytes())

    threading.Thread(target=watch, daemon=True).start()
    inference = Evaluation(method, limit if method == "layers" else None).prepare(model, batch)
    with torch.no_grad():
        inference.logits(model)
        begun = time.perf_counter()
        inference.logits(model)
    seconds = time.perf_counter() - begun
    finished.set()
    memory = f"{(peak - before) / 2**20:,.0f} MiB"
    print(f"| {name}, {WIDTHS[name]} | {method} | {memory} | {seconds:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
