"""The time of a run: that of a few rounds on a random graph, grown to the size of the run."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from gistgnn.accounting.costs import SPARSE
from gistgnn.estimate.memory import Memory
from gistgnn.estimate.resources import DISK
from gistgnn.estimate.shapes import RunShape, SubShape
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph, GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling.clusters import METIS_INSIDE

# Multiply-adds of a forward pass of all sub-GCNs that is timed, at most. Fewer would give smaller
# tensors, which take less time for each entry: glibc keeps the memory of tensors of up to 32 MiB,
# and caches are small.
_OPERATIONS = {"cpu": 2e10, "cuda": 1e12}
_MEMORY = 2**30  # bytes that they take, at most
_LEAST = 1024  # nodes of a larger run, at least
_WIDEST = 512  # its width, at most
_FEATURES = 1024  # at most
_ROUNDS = 3  # that are trained; the first round is not timed
_STEPS = 5  # of a round; fewer where each takes long
_FILES = 1e9  # bytes a second of an ordinary disk, for Θ; it is not measured


class Speed(NamedTuple):
    """The seconds that the parts of a run take on this machine; see `measure_speed`."""

    step: float  # of all sub-GCNs
    exchange: float  # taking all sub-GCNs out of Θ in memory, and merging them
    evaluation: float

    def seconds(self, memory: Memory) -> dict[str, float]:
        """Return the seconds of a step, a round, an epoch, an evaluation, and the whole run."""
        run = memory.run
        schedule = run.schedule
        exchange = sum(run.moved) / _FILES if memory.home == DISK else self.exchange
        steps_in_round = min(schedule.local_steps, schedule.steps)
        rounds = schedule.steps / steps_in_round
        training = schedule.steps * self.step + rounds * exchange
        return {
            "step": self.step if memory.fused else self.step / len(run.subs),
            "round": steps_in_round * self.step + exchange,
            "epoch": training / run.config.training.all_epochs,
            "evaluation": self.evaluation,
            "total": training + run.evaluations * self.evaluation,
        }


def measure_speed(memory: Memory) -> Speed:
    """Train a few rounds like those of a run, and return how long the parts of the run take.

    The same model is trained by the same runner on a random graph, as large as a batch. Where that
    would take long, or much memory, the graph is smaller and the model narrower. Then times grow as
    multiply-adds do, or as the bytes of Θ.
    """
    run = memory.run
    evaluation_settings = run.config.evaluation
    nodes = run.expected.nodes[0]
    edges = max(run.expected.edges)
    degree = edges / nodes
    features = min(run.sizes.features, _FEATURES)
    in_memory = replace(run.sizes.folder, stored=0)
    sizes = replace(run.sizes, nodes=nodes, edges=round(edges), features=features, folder=in_memory)
    small = RunShape(_small(run.config), sizes)
    first = run.subs[0]
    timed = small.subs[0]

    together = len(run.subs) if memory.fused else 1  # Sub-GCNs that hold activations at once.
    bytes_of_node = 12 * features + small.activations(timed) * together / nodes
    operations_of_node = len(run.subs) * _trained(timed, 1, degree)
    device = memory.resources.device
    memory_bytes = min(_MEMORY, memory.resources.limits[device] // 4)
    most_nodes = min(_OPERATIONS[device] / operations_of_node, memory_bytes / bytes_of_node)
    count = min(max(round(most_nodes), _LEAST), nodes)  # Nodes of the graph on which it trains.
    steps = round(_OPERATIONS[device] / 4 / (operations_of_node * count))
    steps = min(max(steps, 1), _STEPS)
    fewer = replace(sizes, nodes=count, edges=round(edges * count / nodes))
    rounds = _train(_small(run.config, steps), fewer)

    step = rounds["train"] / steps
    step *= _trained(first, nodes, edges) / _trained(timed, count, degree * count)
    exchange = rounds["take"] + rounds["merge"]
    exchange *= _bytes_of_slices(run) / _bytes_of_slices(small)
    scored_nodes: float = run.sizes.nodes
    scored_edges: float = run.sizes.edges
    if evaluation_settings.parts:
        scored_parts = evaluation_settings.sample or evaluation_settings.parts
        share = scored_parts / evaluation_settings.parts
        scored_nodes *= share
        scored_edges *= share * METIS_INSIDE  # Edges between parts are left out.
    evaluation = rounds["evaluate"]
    evaluation *= _scored(run, scored_nodes, scored_edges)
    evaluation /= _scored(small, count, degree * count)
    return Speed(step, exchange, evaluation)


def _trained(sub: SubShape, nodes: float, edges: float) -> float:
    """Return the multiply-adds of a forward pass of a sub-GCN.

    One of a sparse product counts as `SPARSE` dense ones.
    """
    return nodes * sub.parameters + SPARSE * edges * sum(sub.hidden)


def _scored(run: RunShape, nodes: float, edges: float) -> float:
    """Return the multiply-adds of an evaluation of the full model, counted in the same way."""
    return nodes * run.full + SPARSE * edges * sum(run.hidden)


def _bytes_of_slices(run: RunShape) -> int:
    return sum(sub.slice for sub in run.subs)


def _small(config: RunConfig, steps: int = _STEPS) -> RunConfig:
    """Return a run of rounds of some steps like those of another run; its width is limited."""
    m = config.sub_gcns
    training = replace(
        config.training,
        epochs=_ROUNDS * steps,
        training="each",
        local_steps=steps,
        evaluate_every=1,
        budget=None,
        patience=None,
        loss=None,
        metric=None,
        class_weights=None,
        label_smoothing=0.0,
    )
    widest = max(_WIDEST // m, 1) * m
    hidden = tuple(min(width, widest) for width in config.model.hidden)
    return replace(
        config,
        model=replace(config.model, hidden=hidden),
        method="gist",
        training=training,
        sampler=None,
        inductive=False,
        store="memory",
        store_precision="float32",
        evaluation=Evaluation("whole"),
    )


def _train(config: RunConfig, sizes: GraphSizes) -> dict[str, float]:
    """Train on a random graph, and return the seconds of a round, by activity.

    They are means over the rounds after the first.
    """
    graph = _random_graph(sizes)
    gist = config.trainer(sizes.features, sizes.classes)
    first: dict[str, float] = {}

    def on_round_end(run: Any, loss: float) -> None:
        if not first:
            first.update(run.progress.seconds)

    callback = SimpleNamespace(on_round_end=on_round_end)
    disabled = logging.root.manager.disable  # By the user.
    # No warnings, such as the note that most parameters are not trained.
    logging.disable(max(logging.WARNING, disabled))
    try:
        result = config.fit(gist, graph, progress=False, callbacks=[callback])
    finally:
        logging.disable(disabled)
    last = result.progress.seconds
    activities = ("take", "train", "merge", "evaluate")
    return {name: (last[name] - first[name]) / (_ROUNDS - 1) for name in activities}


def _random_graph(sizes: GraphSizes) -> Graph:
    rng = torch.Generator().manual_seed(0)
    shape = sizes.nodes, sizes.features
    x = torch.randn(shape, generator=rng) * (torch.rand(shape, generator=rng) < sizes.nonzero)
    y = torch.randint(sizes.classes, (sizes.nodes,), generator=rng)
    is_regression = sizes.classes == 1 and not sizes.multi_label  # of one number
    if sizes.multi_label:
        y = torch.nn.functional.one_hot(y, sizes.classes).float()
    elif is_regression:
        y = torch.randn(sizes.nodes, generator=rng)
    edges = torch.randint(sizes.nodes, (2, max(sizes.edges, 1)), generator=rng)
    return Graph.build(
        x,
        edges,
        y,
        train=torch.arange(2, sizes.nodes),
        val=[0, 1],  # R² needs two
        num_classes=sizes.classes,
        regression=is_regression,
    )
