"""The time of a run: a few rounds are trained on a random graph, and their times grow to the size of the run."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from gistgnn.accounting.costs import SPARSE
from gistgnn.estimate.memory import DISK, Memory
from gistgnn.estimate.shapes import PhaseShape, RunShape
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph, GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling.clusters import METIS_INSIDE
from gistgnn.settings import Phase

# Multiply-adds of a forward pass of all sub-GCNs that is timed, at most. Fewer would give smaller tensors, which take
# less time for each entry: glibc keeps the memory of tensors of up to 32 MiB, and caches are small.
_OPERATIONS = {"cpu": 2e10, "cuda": 1e12}
_MEMORY = 2**30  # bytes that they take, at most
_LEAST, _WIDEST, _FEATURES = 1024, 512, 1024  # nodes at least, width and features at most, of a larger run
_ROUNDS, _STEPS = 3, 5  # that are trained, with fewer steps where each takes long; the first round is not timed
_FILES = 1e9  # bytes a second of an ordinary disk, for Θ; it is not measured


class Speed:
    """How long the parts of a run take on this machine.

    The same model is trained by the same runner on a random graph, as large as a batch. Where that would take long, or
    much memory, the graph is smaller and the model narrower. Then times grow as multiply-adds do, or as the bytes of Θ.
    """

    def __init__(self) -> None:
        self._timed: dict[Any, tuple[float, float, float]] = {}

    def seconds(self, memory: Memory, moved: int) -> dict[str, float]:
        """Seconds by name: of a step, a round (which moves `moved` bytes), an epoch, an evaluation and the phase."""
        run, phase = memory.run, memory.phase
        steps, key = phase.first.steps, (len(phase.slices), phase.number, run.config.model.hidden)
        if key not in self._timed:
            self._timed[key] = _time(memory)
        every, exchange, evaluation = self._timed[key]
        exchange = moved / _FILES if memory.home == DISK else exchange
        epoch = (steps.total * every + steps.total / steps.count * exchange) / phase.epochs
        return {
            "step": every if memory.fused else every / phase.trained,
            "round": steps.count * every + exchange,
            "epoch": epoch,
            "evaluation": evaluation,
            "phase": phase.epochs * epoch,
            "total": phase.epochs * epoch + phase.evaluations * evaluation,
        }


def _time(memory: Memory) -> tuple[float, float, float]:
    """Return the seconds of a step of all sub-GCNs of a phase, of taking and merging them, and of an evaluation."""
    run, phase, wanted = memory.run, memory.phase, memory.run.config.evaluation
    nodes, edges, features = run.expected.nodes[0], max(run.expected.edges), min(run.sizes.features, _FEATURES)
    sizes = replace(run.sizes, nodes=nodes, edges=round(edges), features=features, stored=0)
    small = RunShape(_small(run.config, phase), sizes)
    [timed] = small.phases
    each = phase.trained * _trained(timed, 1, edges / nodes)  # multiply-adds of a node
    held = 12 * features + small.activations(timed) * (phase.trained if memory.fused else 1) / nodes  # its bytes
    device, operations = memory.resources.device, _OPERATIONS[memory.resources.device]
    most = min(operations / each, min(_MEMORY, memory.resources.limits[device] // 4) / held)
    count = min(max(round(most), _LEAST), nodes)
    steps = min(max(round(operations / 4 / (each * count)), 1), _STEPS)
    config = _small(run.config, phase, steps)
    rounds = _train(config, replace(sizes, nodes=count, edges=round(edges * count / nodes)))
    larger = edges / nodes * count
    step = rounds["train"] / steps * _trained(phase, nodes, edges) / _trained(timed, count, larger)
    exchange = (rounds["take"] + rounds["merge"]) * sum(phase.slices) / sum(timed.slices)
    share = (wanted.sample or wanted.parts) / wanted.parts if wanted.parts else 1.0
    inside = share * METIS_INSIDE if wanted.parts else 1.0  # edges between parts are left out
    evaluation = rounds["evaluate"] * _scored(run, phase, share * run.sizes.nodes, inside * run.sizes.edges)
    return step, exchange, evaluation / _scored(small, timed, count, larger)


def _trained(phase: PhaseShape, nodes: float, edges: float) -> float:
    """Multiply-adds of a forward pass of a sub-GCN, where one of a sparse product counts as `SPARSE` dense ones."""
    return nodes * phase.parameters[0] + SPARSE * edges * sum(phase.hidden[0])


def _scored(run: RunShape, phase: PhaseShape, nodes: float, edges: float) -> float:
    """Multiply-adds of an evaluation: of the sub-GCNs that train in a phase of copies, otherwise of the full model."""
    return (
        phase.first.copies * _trained(phase, nodes, edges)
        if phase.first.copies
        else nodes * run.full + SPARSE * edges * sum(run.hidden)
    )


def _small(config: RunConfig, phase: PhaseShape, steps: int = _STEPS) -> RunConfig:
    """Return a run of rounds of some steps like those of a phase; its width is limited."""
    m, epochs, copies = len(phase.slices), _ROUNDS * steps, phase.first.copies
    training = replace(
        config.training, phases=(Phase(m, epochs, copies=copies),) if copies else (), epochs=epochs,
        training="each", local_steps=steps, evaluate_every=1, budget=None, patience=None, loss=None, metric=None,
        class_weights=None, label_smoothing=0.0,
    )  # fmt: skip
    hidden = tuple(min(width, max(_WIDEST // m, 1) * m) for width in config.model.hidden)
    return replace(
        config, model=replace(config.model, hidden=hidden), sub_gcns=m, method="gist", training=training, sampler=None,
        inductive=False, store="memory", store_precision="float32", evaluation=Evaluation("whole"),
    )  # fmt: skip


def _train(config: RunConfig, sizes: GraphSizes) -> dict[str, float]:
    """Train on a random graph; return the mean seconds of every activity in the rounds after the first."""
    rng, shape = torch.Generator().manual_seed(0), (sizes.nodes, sizes.features)
    x = torch.randn(shape, generator=rng) * (torch.rand(shape, generator=rng) < sizes.nonzero)
    y = torch.randint(max(sizes.classes, 1), (sizes.nodes,), generator=rng)
    y = torch.nn.functional.one_hot(y, sizes.classes).float() if sizes.multi_label else y
    edges, train = torch.randint(sizes.nodes, (2, sizes.edges), generator=rng), torch.arange(2, sizes.nodes)
    graph = Graph.build(x, edges, y, train=train, val=[0], test=[1], num_classes=sizes.classes)
    first: dict[str, float] = {}

    def on_round_end(run: Any, loss: float) -> None:
        if not first:
            first.update(run.progress.seconds)

    gist, callbacks = config.trainer(sizes.features, sizes.classes), [SimpleNamespace(on_round_end=on_round_end)]
    logging.disable(logging.WARNING)  # such as the note that most parameters are not trained
    try:
        found = config.fit(gist, graph, progress=False, callbacks=callbacks).progress.seconds
    finally:
        logging.disable(logging.NOTSET)
    return {name: (found[name] - first[name]) / (_ROUNDS - 1) for name in ("take", "train", "merge", "evaluate")}
