"""Steps on a GPU: ours beside the matrix products alone, and beside PyG's, on the same batch.

A contender takes `STEPS` steps on a batch of clusters that is new in every step: nothing is kept
from an earlier step, neither the operators that follow from the edges nor their transposes. A step
of GIST is the step of one sub-GCN: the time for a batch, divided by m. The floor has the dense
matrix products of that step and nothing else, as one launch.
"""

import argparse
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.gpu.timing import Clock, Times, measure_in_turn, profile
from benchmarks.steps import DROPOUT, HEADS, LAYERS, PyGNet
from benchmarks.tables import number, table
from gistgnn import GIST
from gistgnn.graphs import CSR, Graph, load
from gistgnn.nn import MODELS
from gistgnn.runners.registry import make_runner
from gistgnn.sampling import Batch, ClusterSampling, Sampler, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training

STEPS = 10  # ζ, in a call of a contender
ENDLESS = 10**6  # steps of the whole run, of which the schedule depends
RUNNERS = ("in-turn", "fused")
# The model, its width, the precision, and whether PyG's model is compiled as well, which takes up
# to half a minute.
CASES = (
    ("graphsage", 1024, "float32", True),
    ("graphsage", 4096, "float32", True),
    ("graphsage", 256, "float32", False),
    ("gcn", 1024, "float32", False),
    ("gat", 1024, "float32", False),
    ("graphsage", 4096, "tf32", False),
    ("graphsage", 4096, "bf16", False),
    ("graphsage", 1024, "bf16", False),
    ("gcn", 4096, "float32", False),
    ("gat", 4096, "float32", False),
    ("gcn", 256, "float32", False),
    ("gat", 256, "float32", False),
)
SMALL_CASES = (
    ("graphsage", 16, "float32", False),
    ("gcn", 16, "float32", False),
    ("gat", 16, "float32", False),
)
CONTENDERS = ("m = 1", *RUNNERS, "floor", "PyG", "PyG compiled")
HEAD = ("", *CONTENDERS, "fused / floor", "PyG / fused", "PyG / m = 1")


class NewBatches(Sampler):
    """The same batch in every step, made anew.

    So nothing that follows from its edges is computed already when a step begins.
    """

    steps_per_epoch = 1

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.largest_batch = len(batch.x), int(1.05 * batch.adj.num_edges)

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield the batches of some steps."""
        for _ in range(steps):
            yield self.new()

    def new(self) -> Batch:
        """Return the batch without what was computed of it."""
        old = self._batch
        pattern = old.adj.pattern
        edges = CSR(pattern.rowptr, pattern.col, pattern.shape, pattern.loops)
        return Batch(old.x, edges, old.y, old.loss_nodes, None, old.is_sparse)

    def select_columns(self, columns: Tensor) -> Sampler:
        """Refuse: the input features are whole here."""
        raise NotImplementedError


class Rounds:
    """GIST by hand: rounds of `STEPS` steps, with the time of each part of a round."""

    def __init__(self, graph: Graph, batch: Batch, case: "Case", m: int, runner: str) -> None:
        heads = {"heads": HEADS} if case.model == "gat" else {}
        fixed: dict[str, Any] = {"dropout": DROPOUT, "norm": "layer", **heads}
        head_width = case.width // heads.get("heads", 1)

        def build(widths: Any) -> nn.Module:
            return MODELS[case.model](graph.num_features, widths, graph.num_classes, **fixed)

        self._m = m
        self._clock = Clock(case.device)
        self._gist = GIST(build, (head_width,) * LAYERS, m, device=case.device)
        self._run = make_runner(runner)
        self._sampler = NewBatches(batch)
        self._training = Training(1, precision="bf16" if case.precision == "bf16" else "float32")
        self._rounds = 0
        self.parts: dict[str, list[float]] = {"take": [], "write": []}  # milliseconds of a round

    def __call__(self) -> float:
        """Train a round; return the milliseconds of a step of one sub-GCN."""
        clock = self._clock
        begun = clock.mark()
        round_ = self._gist.take_round(keeps_moments=False)  # a new optimiser in every round
        prepared = clock.mark()
        steps = StepRange(self._rounds * STEPS, STEPS, ENDLESS)
        losses = self._run(round_, self._sampler, self._training, steps, 0)
        trained = clock.mark()
        round_.aggregate(losses)
        written = clock.mark()
        self._rounds += 1
        self.parts["take"].append(clock.milliseconds(begun, prepared))
        self.parts["write"].append(clock.milliseconds(trained, written))
        return clock.milliseconds(prepared, trained) / STEPS / self._m

    def medians(self) -> dict[str, float]:
        """Return the median milliseconds of each part of a round."""
        return {part: sorted(values)[len(values) // 2] for part, values in self.parts.items()}


class Case:
    """What is measured beside each other: one model, width and precision."""

    def __init__(self, model: str, width: int, precision: str, device: str) -> None:
        self.model = model
        self.width = width
        self.precision = precision
        self.device = torch.device(device)

    def __str__(self) -> str:
        return f"{self.model} {self.width}, {self.precision}"


def pyg_steps(graph: Graph, batch: Batch, case: Case, *, compiled: bool) -> Callable[[], float]:
    """Return steps of PyG's layers, as its examples have them."""
    net: nn.Module = PyGNet(case.model, graph.num_features, case.width, graph.num_classes)
    net = net.to(case.device)
    optimizer = torch.optim.Adam(net.parameters(), fused=case.device.type == "cuda")
    model = torch.compile(net) if compiled else net
    clock = Clock(case.device)
    half = case.precision == "bf16"
    edges = batch.edge_index

    def call() -> float:
        begun = clock.mark()
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast(case.device.type, torch.bfloat16, enabled=half):
                logits = model(batch.x, edges)
                loss = F.cross_entropy(logits[batch.loss_nodes].float(), batch.y[batch.loss_nodes])
            loss.backward()
            optimizer.step()
        return clock.milliseconds(begun, clock.mark()) / STEPS

    return call


def floor(graph: Graph, batch: Batch, case: Case, m: int) -> Callable[[], float]:
    """Return the dense matrix products of a step of m sub-GCNs, forward and backward.

    On a GPU they are one launch.
    """
    nodes = len(batch.x)
    features = graph.num_features
    classes = graph.num_classes
    width = case.width // m
    joins = 2 if case.model == "graphsage" else 1  # a layer of GraphSAGE multiplies [H, ĀH]
    kind = torch.bfloat16 if case.precision == "bf16" else torch.float32
    inner_sizes = [joins * features, *[joins * width] * LAYERS]
    outer_sizes = [*[width] * LAYERS, classes]
    products = []
    for layer, (inner, outer) in enumerate(zip(inner_sizes, outer_sizes, strict=True)):
        h = torch.randn(m, nodes, inner, device=case.device, dtype=kind)
        weight = torch.randn(m, inner, outer, device=case.device, dtype=kind)
        grad = torch.randn(m, nodes, outer, device=case.device, dtype=kind)
        products += [(h, weight), (h.transpose(1, 2), grad)]
        products += [(grad, weight.transpose(1, 2))] if layer else []

    def multiply() -> None:
        for a, b in products:
            torch.bmm(a, b)

    clock = Clock(case.device)
    replay = multiply
    if case.device.type == "cuda":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            multiply()
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            multiply()
        replay = recorded.replay

    # The recording reads the tensors where they lie, so the default argument keeps them alive.
    def call(products: Any = products) -> float:
        begun = clock.mark()
        for _ in range(STEPS):
            replay()
        return clock.milliseconds(begun, clock.mark()) / STEPS / m

    return call


def batch_of(graph: Graph) -> tuple[Batch, dict[str, float]]:
    """Return a batch of 10 of 60 random clusters, and its facts.

    They are its nodes and edges, and the milliseconds of making one and bringing it to the device.
    """
    clusters = min(60, len(graph.x) // 4)
    sampling = ClusterSampling(clusters, max(clusters // 6, 1), "random", precompute=False)
    sampler = sampling.sampler(whole_graph(graph), 0)
    clock = Clock(graph.x.device)
    times = []
    for drawn in sampler._drawn(0, 8):
        begun = clock.mark()
        batch = sampler.make(drawn)
        times.append(clock.milliseconds(begun, clock.mark()))
    with closing(sampler.batches(0, 1)) as made:
        batch = next(made)
    return batch, {
        "make_ms": sorted(times)[len(times) // 2],
        "nodes": len(batch.x),
        "edges": batch.adj.num_edges,
    }


def measure_case(
    graph: Graph, case: Case, m: int, *, compiled: bool, samples: int
) -> dict[str, Any]:
    """Measure everything of a case; what fails is named in "failed"."""
    batch, facts = batch_of(graph)
    torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    rounds = {"m = 1": Rounds(graph, batch, case, 1, "auto")}
    rounds |= {name: Rounds(graph, batch, case, m, name) for name in RUNNERS}
    contenders: dict[str, Callable[[], float]] = {**rounds, "floor": floor(graph, batch, case, m)}
    contenders["PyG"] = pyg_steps(graph, batch, case, compiled=False)
    if compiled:
        contenders["PyG compiled"] = pyg_steps(graph, batch, case, compiled=True)
    failed: dict[str, str] = {}
    times = measure_in_turn(contenders, samples=samples, failed=failed)
    profiles = {}
    for name in ("m = 1", "fused", "PyG"):
        if name in times:
            steps = STEPS * (m if name in RUNNERS else 1)
            profiles[name] = profile(contenders[name], steps, case.device)
    parts = {name: run.medians() for name, run in rounds.items() if name in times}
    return {
        "m": m,
        "batch": facts,
        "times": times,
        "profiles": profiles,
        "rounds": parts,
        "failed": failed,
    }


def measure(options: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> None:
    """Measure every case; `keep` gets all that is known after each."""
    graph = load("digits" if options.small else "synthetic:amazon2m@0.004")
    graph = graph.to(torch.device(options.device))
    m = 2 if options.small else 8
    samples = 2 if options.small else 3
    results: dict[str, Any] = {}
    for model, width, precision, compiled in SMALL_CASES if options.small else CASES:
        case = Case(model, width, precision, options.device)
        compiled = compiled and options.compiled
        results[str(case)] = measure_case(graph, case, m, compiled=compiled, samples=samples)
        keep(results)


def page(results: dict[str, Any]) -> str:
    """Return the tables of the cases."""
    first_case = next(iter(results.values()))
    batch = first_case["batch"]
    text = f"Milliseconds of a step, m = {first_case['m']}; "
    text += f"the batch has {batch['nodes']:,} nodes and {batch['edges']:,} edges. "
    text += "In brackets: how much the medians of two turns differ."
    text_of_profiles = (
        "What the profiler sees of a step, the milliseconds of taking a round's slices out of Θ "
        "and writing them back, and of making a batch:"
    )
    times = [[name, *cells(case["times"])] for name, case in results.items()]
    head_of_profiles = ("", "runner", "kernels", "GPU busy", "take", "write", "make a batch")
    profiles: list[list[str]] = []
    for name, case in results.items():
        profiles += rows_of_profiles(name, case)
    parts = [text, table(HEAD, times), text_of_profiles, table(head_of_profiles, profiles)]
    for name, case in results.items():
        if "fused" in case["profiles"]:
            parts.append(f"The longest of {name}, fused: {longest(case['profiles']['fused'])}")
        for contender, error in case["failed"].items():
            parts.append(f"- {name}, {contender} failed: {error}")
    return "\n\n".join(parts)


def cells(times: dict[str, Times]) -> Iterable[str]:
    """Return the cells of a row of times."""
    for name in CONTENDERS:
        yield cell(times.get(name))
    yield ratio(times, "fused", "floor")
    yield ratio(times, "PyG", "fused")
    yield ratio(times, "PyG", "m = 1")


def cell(times: Times | None) -> str:
    """Format a median with the spread of its turns."""
    if times is None:
        return "—"
    spread = (max(times["turns"]) - min(times["turns"])) / times["ms"]
    return f"{number(times['ms'])} ({spread:.0%})"


def ratio(times: dict[str, Times], one: str, other: str) -> str:
    """Format how many times one contender's time is another's."""
    if one not in times or other not in times:
        return "—"
    return f"{times[one]['ms'] / times[other]['ms']:.2f}"


def rows_of_profiles(name: str, case: dict[str, Any]) -> Iterable[list[str]]:
    """Yield a row for every profiled contender of a case."""
    for contender, seen in case["profiles"].items():
        parts = case["rounds"].get(contender, {})
        slices = [number(parts.get(part)) for part in ("take", "write")]
        kernels = number(seen["kernels_per_step"])
        made = number(case["batch"]["make_ms"])
        yield [name, contender, kernels, f"{seen['busy_share']:.0%}", *slices, made]


def longest(seen: dict[str, Any]) -> str:
    """Return the kernels with the most time, in one line."""
    total = sum(kernel["ms"] for kernel in seen["longest"])
    return "; ".join(
        f"`{kernel['name'][:60]}` {kernel['count']}x {kernel['ms'] / total:.0%}"
        for kernel in seen["longest"][:5]
    )
