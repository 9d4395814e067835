"""The shapes of the paper's Tables 2 and 3 on one GPU: rounds on a part of a synthetic graph, and what they come to.

The graphs are drawn on the machine, so a fraction of them is used, with as many nodes in a cluster as in the whole.
A batch is then as large as one of the whole graph. Only some steps are run; the time of all epochs is extrapolated.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_stage import Measurement, measure_all, parse
from benchmarks.tables import quartiles
from gistgnn import GIST
from gistgnn.graphs import Graph, load
from gistgnn.nn import GraphSAGE
from gistgnn.runners.registry import make_runner
from gistgnn.sampling import ClusterSampling, Sampler, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training

ENDLESS = 10**9  # steps of the whole run, for the schedule
ROUNDS = 3  # that are timed, after one that is not
LAYERS = 2
METHOD = "metis" if find_spec("pymetis") else "random"  # batches of random clusters have fewer edges


@dataclass(frozen=True)
class Shape:
    """A row of a table: `fraction` of `dataset` in as large a share of the clusters.

    Args:
        table: of the paper.
        dataset: a synthetic graph.
        fraction: of its nodes and edges.
        clusters: c of the whole graph.
        per_batch: q.
        hidden: the width of each hidden layer.
        epochs: E of the paper's run.
        local_steps: ζ of the paper's run.
        steps: of a timed round.
    """

    table: int
    dataset: str
    fraction: float
    clusters: int
    per_batch: int
    hidden: int
    epochs: int
    local_steps: int
    steps: int


SHAPES = (
    Shape(2, "synthetic:reddit", 0.1, 1_500, 10, 256, 80, 500, 60),
    Shape(3, "synthetic:amazon2m", 0.02, 15_000, 10, 400, 400, 5_000, 60),
    Shape(3, "synthetic:amazon2m", 0.02, 15_000, 10, 4_096, 400, 5_000, 30),
)
TINY = (Shape(2, "synthetic:amazon2m", 0.001, 15_000, 5, 16, 400, 10, 2),)


def main() -> None:
    """Measure every shape with every m."""
    options = parse("gpu_shapes", __doc__, 70)
    with tempfile.TemporaryDirectory() as cache:
        measure_all(options, "rows", wanted(options.device, Path(cache), rehearse=options.rehearse))


def wanted(device: str, cache: Path, *, rehearse: bool) -> Iterator[Measurement]:
    """Yield what is to be measured; a graph is drawn for its first measurement."""
    for shape in TINY if rehearse else SHAPES:
        prepared = functools.cache(partial(prepare, shape, device, cache))
        for m in (1, 2) if rehearse else (1, 2, 4, 8):
            yield f"{shape.dataset} {shape.hidden} m={m}", partial(measure, shape, m, prepared, device)


def prepare(shape: Shape, device: str, cache: Path) -> tuple[Graph, Sampler]:
    """Draw the graph, cluster it, and return it on the device with its batches."""
    os.environ["GISTGNN_CACHE"] = str(cache)
    name = shape.dataset if shape.fraction == 1 else f"{shape.dataset}@{shape.fraction:g}"
    graph = load(name).to(device)
    clusters = max(round(shape.clusters * shape.fraction), shape.per_batch)
    return graph, ClusterSampling(clusters, shape.per_batch, METHOD).sampler(whole_graph(graph), 0)


def measure(shape: Shape, m: int, prepared: Callable[[], tuple[Graph, Sampler]], device: str) -> dict[str, Any]:
    """Time rounds of m sub-GCNs, fused if there are several, on the graph and the batches that are ``prepared``."""
    graph, sampler = prepared()

    def build(widths: tuple[int, ...]) -> GraphSAGE:
        return GraphSAGE(graph.num_features, widths, graph.num_classes, norm="layer", dropout=0.2)

    gist = GIST(build, (shape.hidden,) * LAYERS, m, device=device)
    runner, training = make_runner("fused" if m > 1 else "in-turn"), Training(epochs=1, local_steps=shape.steps)
    passes, exchanges = [], []
    for number in range(1 + ROUNDS):
        begun = now(device)
        round_ = gist.begin_round()
        taken = now(device)
        stretch = StepRange(number * shape.steps, shape.steps, ENDLESS)
        losses = runner(round_, sampler, training, stretch, 0)
        trained = now(device)
        round_.aggregate(losses)
        if number:
            passes.append(1e3 * (trained - taken) / shape.steps)
            exchanges.append(1e3 * (now(device) - trained + taken - begun))
    steps = shape.epochs * -(-shape.clusters // shape.per_batch) / m  # of every sub-GCN
    one, exchange = quartiles(passes), quartiles(exchanges)
    seconds = (steps * one["median"] + steps / shape.local_steps * exchange["median"]) / 1e3
    return {
        **asdict(shape),
        "sub_gcns": m,
        "runner": "fused" if m > 1 else "in-turn",
        "clusters_by": METHOD,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "pass_ms": one,
        "exchange_ms": exchange,
        "steps_of_all_epochs": steps,
        "extrapolated_seconds": seconds,
        "peak_bytes": torch.cuda.max_memory_allocated() if torch.device(device).type == "cuda" else None,
    }


def now(device: str) -> float:
    """Return the time when all that was asked of the device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
