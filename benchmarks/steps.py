"""Milliseconds of a training step: PyG's layers, ordinary training (m = 1), and sub-GCNs.

    python -m benchmarks.steps --widths 4096 1024 256
    python -m benchmarks.steps --model gat --widths 1024 --device cuda --precision bf16

The contenders take turns, round by round, in one process. A step of ours is a round of `GIST.fit`
divided by its steps: batches, operators, forward, backward, optimiser, and the slices of Θ that are
taken and written back. A step of PyG's is one of the loop that its examples have, on batches that
are there already, in its layout. The graph has the shape of Amazon2M: 10 of 60 clusters in a batch,
about 1,630 nodes. On a GPU the peak of allocated memory is measured as well.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.tables import describe_machine, on, quartiles, spread, table
from gistgnn import GIST, Callback
from gistgnn.graphs import Graph, load
from gistgnn.nn import MODELS
from gistgnn.sampling import Batch, ClusterSampling, whole_graph

DROPOUT = 0.2
HEADS = 4
LAYERS = 2
# Without precompute the first layer sums neighbours in each batch, as PyG's does.
SAMPLING = ClusterSampling(60, 10, precompute=False)
NEVER = 10**6  # rounds
Step = Callable[[], list[float]]  # trains, and returns the seconds of each step


class Stopwatch(Callback):
    """Measures the seconds of `rounds` rounds after the first, and ends the run.

    The first round does not count, as it loads code.
    """

    def __init__(self, rounds: int) -> None:
        self.seconds: list[float] = []
        self._rounds = rounds
        self._last = 0.0

    def on_round_end(self, run: Any, loss: float) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if run.round > 1:
            self.seconds.append(now - self._last)
        self._last = now
        if len(self.seconds) == self._rounds:
            run.interrupt()


def seconds_of_rounds(
    graph: Graph,
    build: Callable[[Any], nn.Module],
    widths: Any,
    m: int,
    rounds: int,
    **options: Any,
) -> list[float]:
    """Train by `GIST.fit` and return the seconds of each round.

    Args:
        graph: the graph.
        build: makes the model of some widths.
        widths: of the full model.
        m: the number of sub-GCNs.
        rounds: how many rounds are measured, after one that is not.
        **options: of `GIST` (device, store) and of `fit`.
    """
    watch = Stopwatch(rounds)
    gist_options = {name: options.pop(name) for name in ("device", "store") if name in options}
    fit_options: dict[str, Any] = {
        "epochs": NEVER * m,  # The stopwatch ends the run long before.
        "evaluate_every": NEVER,
        "optimizer_state": "carry",
        "progress": False,
    }
    fit_options |= options
    GIST(build, widths, m, **gist_options).fit(graph, callbacks=[watch], **fit_options)
    return watch.seconds


class PyGNet(nn.Module):
    """The same model of PyG's layers: each hidden layer is followed by norm, ReLU and dropout."""

    def __init__(self, model: str, features: int, width: int, classes: int) -> None:
        super().__init__()
        sizes = [features, *[width] * LAYERS, classes]
        last = len(sizes) - 2
        self.convs = nn.ModuleList(
            [layer(model, *sizes[k : k + 2], last=k == last) for k in range(last + 1)]
        )

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        *hidden, last = self.convs
        for conv in hidden:
            x = conv(x, edges)
            x = F.dropout(F.relu(F.layer_norm(x, x.shape[1:])), DROPOUT, self.training)
        out: Tensor = last(x, edges)
        return out


def layer(model: str, features: int, width: int, *, last: bool) -> nn.Module:
    """Return PyG's layer of a kind."""
    if model == "gat":
        return pyg.GATConv(
            features, width if last else width // HEADS, HEADS, concat=not last, dropout=DROPOUT
        )
    return pyg.SAGEConv(features, width) if model == "graphsage" else pyg.GCNConv(features, width)


def in_layout(batch: Batch, layout: str) -> Tensor:
    """Return a batch's edges as PyG's layers take them.

    The layout "edge_index" is [2, edges]; "CSR" is a sparse tensor of (target, source).
    """
    if layout == "edge_index":
        return batch.edge_index
    rowptr = batch.edges.rowptr.long()
    col = batch.edges.col.long()
    ones = torch.ones(len(col), device=col.device)
    return torch.sparse_csr_tensor(rowptr, col, ones, batch.edges.shape, check_invariants=False)


def pyg_loop(
    graph: Graph, model: str, width: int, layout: str, steps: int, device: str, precision: str
) -> Step:
    """Return the loop of PyG's examples over a few batches."""
    sampler = SAMPLING.sampler(whole_graph(graph.to(device)), 0)
    with closing(sampler.batches(0, 4)) as made:
        batches = [
            (batch.x, in_layout(batch, layout), batch.y, batch.loss_nodes)
            for batch in islice(made, 4)
        ]
    net = PyGNet(model, graph.num_features, width, graph.num_classes).to(device)
    optimizer = torch.optim.Adam(net.parameters())

    def train() -> list[float]:
        seconds = []
        for number in range(1 + steps):
            begun = time.perf_counter()
            x, edges, y, nodes = batches[number % len(batches)]
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                loss = F.cross_entropy(net(x, edges)[nodes].float(), y[nodes])
            loss.backward()
            optimizer.step()
            loss.item()  # waits for a GPU
            seconds.append(time.perf_counter() - begun)
        return seconds[1:]  # The first step does not count, as it loads code.

    return train


def gist_rounds(
    graph: Graph, model: str, width: int, m: int, runner: str, options: argparse.Namespace
) -> Step:
    """Return a run of `GIST.fit`; the seconds are those of a step of one sub-GCN."""
    heads = {"heads": HEADS} if model == "gat" else {}
    head_width = width // heads.get("heads", 1)
    zeta = options.local_steps
    fixed: dict[str, Any] = {"dropout": DROPOUT, "norm": "layer", **heads}

    def build(widths: Any) -> nn.Module:
        return MODELS[model](graph.num_features, widths, graph.num_classes, **fixed)

    def train() -> list[float]:
        seconds = seconds_of_rounds(
            graph,
            build,
            (head_width,) * LAYERS,
            m,
            options.rounds,
            sampler=SAMPLING,
            runner=runner,
            local_steps=zeta,
            precision=options.precision.replace("tf32", "float32"),
            device=options.device,
        )
        return [seconds_of_round / zeta / m for seconds_of_round in seconds]

    return train


def contenders(
    graph: Graph, model: str, width: int, options: argparse.Namespace
) -> dict[str, Step]:
    """Return the contenders by their names."""
    steps = options.rounds * options.local_steps
    step_of: dict[str, Step] = {}
    for layout in ("edge_index", "CSR"):
        step_of[f"PyG, {layout}"] = pyg_loop(
            graph, model, width, layout, steps, options.device, options.precision
        )
    step_of["m=1"] = gist_rounds(graph, model, width, 1, "auto", options)
    for m in options.sub_gcns:
        for runner in ("in-turn", "auto", "fused"):
            step_of[f"{runner} m={m}"] = gist_rounds(graph, model, width, m, runner, options)
    return step_of


def measure(
    graph: Graph, model: str, width: int, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Measure all contenders of one model and width in turn.

    One that fails is left out; its error goes to standard error.
    """
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    cuda = torch.device(options.device).type == "cuda"
    samples: dict[str, list[float]] = {}
    peaks: dict[str, int] = {}
    left = contenders(graph, model, width, options)
    for _ in range(options.repeat):
        for name, step in list(left.items()):
            if cuda:
                torch.cuda.reset_peak_memory_stats()
            try:
                samples[name] = samples.get(name, []) + [1e3 * seconds for seconds in step()]
            except Exception as error:
                # There may be too little memory, or a layer may not take the layout in bf16.
                message = f"{model} {width}, {name}: {type(error).__name__}: {error}"
                print(message.splitlines()[0], file=sys.stderr)
                del left[name]
                continue
            peaks[name] = torch.cuda.max_memory_allocated() if cuda else 0
    return {name: {"step_ms": quartiles(samples[name]), "peak_bytes": peaks[name]} for name in left}


def rows(results: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return the rows of a table: a step, and how many times as long its peers take."""
    medians = {name: result["step_ms"]["median"] for name, result in results.items()}
    of_pyg = [median for name, median in medians.items() if name.startswith("PyG")]
    fastest_pyg = min(of_pyg, default=None)
    lines = []
    for name, result in results.items():
        to_pyg = times_as_long(fastest_pyg, medians[name])
        to_one_model = times_as_long(medians.get("m=1"), medians[name])
        peak = f"{result['peak_bytes'] / 2**30:.2f}" if result["peak_bytes"] else "—"
        lines.append([name, spread(result["step_ms"]), to_pyg, to_one_model, peak])
    return lines


def times_as_long(peer: float | None, step: float) -> str:
    """Format how many times as long a peer's step takes; a dash if it was not measured."""
    return f"{peer / step:.2f}x" if peer else "—"


HEAD = ["", "step, ms (quartiles)", "PyG's faster one / it", "m=1 / it", "peak on the GPU, GiB"]


def main() -> None:
    """Measure every width, and print a table for each."""
    options = parse()
    # The runs are short and leave parameters untrained, which gistgnn would note.
    logging.getLogger("gistgnn").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    machine = describe_machine(torch.get_num_threads(), options.device)
    graph = load(options.dataset)
    print(f"# Steps of {options.model}, {options.precision}\n\n{on(machine)}; {graph}", flush=True)
    record = {}
    for width in options.widths:
        record[width] = measure(graph, options.model, width, options)
        print(f"\nWidth {width}:\n\n{table(HEAD, rows(record[width]))}", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "arguments": sys.argv[1:], "widths": record})
        )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.steps", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--model", choices=("graphsage", "gcn", "gat"), default="graphsage")
    of_widths = "of both hidden layers; 4 heads of GAT"
    add("--widths", type=int, nargs="+", default=[1024, 256], metavar="D", help=of_widths)
    add("--sub-gcns", type=int, nargs="+", default=[8], metavar="M")
    add("--dataset", default="synthetic:amazon2m@0.004")
    add("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    add("--device", default="cpu")
    add("--threads", type=int, help="of torch on the host")
    add("--local-steps", type=int, default=5, help="ζ")
    add("--rounds", type=int, default=2, help="that are measured in one turn")
    add("--repeat", type=int, default=5, help="turns")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
