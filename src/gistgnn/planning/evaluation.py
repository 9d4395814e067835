"""What an evaluation of a rehearsed run takes: it chooses the method as `Evaluation.prepare` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import nn

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import Budget, Costs, plan_layers, whole_graph_bytes
from gistgnn.evaluation.by_parts import nodes_at_once
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn import GNN
from gistgnn.nn.gnn import Propagation, as_gnn
from gistgnn.planning.graph_memory import PlannedGraph
from gistgnn.planning.ledger import Ledger, Work, filler
from gistgnn.sampling import ClusterSampling, forward

SCORED = 100  # bytes for a node while its prediction is compared with its label


@dataclass(frozen=True)
class PlannedEvaluation:
    """An evaluation.

    Args:
        method: "whole", "layers" or "parts".
        run: holds the memory that it holds, and computes a part of what it computes.
        add: adds the rest of the work.
        scoring: bytes that it takes to compare predictions with labels.
        disk: bytes of its temporary files.
    """

    method: str
    run: Callable[[], object]
    add: Callable[[Work], None]
    scoring: int
    disk: int = 0


def plan_evaluation(
    model: nn.Module,
    graph: PlannedGraph,
    wanted: Evaluation,
    sizes: GraphSizes,
    ledger: Ledger,
    room: Sequence[int],
    reading: int,
) -> PlannedEvaluation:
    """Choose an evaluation.

    Args:
        model: the model; one from outside `gistgnn.nn` is run on the whole graph, or on one part after the other.
        graph: the graph.
        wanted: the settings.
        sizes: of the graph.
        ledger: counts the work.
        room: bytes that it may take on the host, and on the model's GPU if there is one.
        reading: bytes for weights that are read from where Θ lies.
    """
    gnn, batch = as_gnn(model), graph.stored or graph.whole
    least = Costs(gnn, batch, 0).least if gnn else 0  # where there is less, the run does not fit, and the plan says so
    budget = Budget(*(wanted.memory or max(free, least) for free in room))
    if wanted.parts is not None:
        most = nodes_at_once(model, graph.whole, budget)
        return _by_parts(model, graph, (wanted.parts, wanted.sample), sizes, ledger, most)
    method = wanted.method
    if method == "auto" and gnn:
        fits = graph.stored is None and whole_graph_bytes(gnn, batch) <= budget.compute
        method = "whole" if fits else "layers"
    if gnn is None or method == "whole":
        held = graph.in_memory()
        scored = partial(_add_scoring, sizes.scored_nodes)
        return PlannedEvaluation("whole", partial(forward, model, held), scored, SCORED * sizes.nodes)
    if wanted.memory is None and room[-1] < least:
        filler(2 * least, batch.x.device)  # it asks for half of what is there
    return _by_layers(gnn, graph, sizes, ledger, budget)


def _by_parts(
    model: nn.Module, graph: PlannedGraph, given: tuple[int, int | None], sizes: GraphSizes, ledger: Ledger, most: int
) -> PlannedEvaluation:
    """Evaluate parts of the graph, so many nodes at once; one batch stands for all."""
    parts = min(given[0], sizes.nodes)
    chosen = min(given[1] or parts, parts)
    together = min(max(most * parts // sizes.nodes, 1), chosen)
    sampling = ClusterSampling(parts, together, precompute=False)
    sampler = graph.parts(sampling.expected(sizes, 1), ledger, sampling).for_sub_gcn(1)

    def run() -> object:
        scores = torch.empty(sizes.nodes, sizes.classes, device=graph.whole.x.device) if not graph.stored else None
        return scores, forward(model, next(sampler.batches(0, 1)))

    def add(work: Work) -> None:
        work.read = sampler.bytes_read
        one = replace(work, products=Counter(work.products), sparse=Counter(work.sparse))
        work.add(one, chosen / together - 1)
        _add_scoring(sizes.scored_nodes * chosen // parts, work)

    return PlannedEvaluation("parts", run, add, _scoring_bytes(graph, sizes))


def _by_layers(gnn: GNN, graph: PlannedGraph, sizes: GraphSizes, ledger: Ledger, budget: Budget) -> PlannedEvaluation:
    """Evaluate layer by layer: the work is that of the whole graph, and of storing features between steps."""
    batch = graph.stored or graph.whole
    device = batch.x.device
    plan, costs = plan_layers(gnn, batch, budget), Costs(gnn, batch, budget.compute // 4)
    features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
    kept, chunk = (
        filler(costs.resident + graph.needed_bytes(gnn), device),
        max(costs.preparing - costs.resident, plan.work + features),
    )
    moved = 2 * sum(costs.column(layer.stored + layer.messages + layer.hidden) for layer in plan.layers)

    def run() -> object:
        if plan.cache_product:
            graph.make_product(cast(Propagation, gnn.convs[0]).operator)
        return filler(chunk, device), kept

    def add(work: Work) -> None:
        with torch.no_grad(), ledger.uncounted(), ledger.observed(device.type) as whole:
            forward(gnn, graph.whole)
        whole.bytes, whole.large = whole.bytes + whole.large, 0  # a chunk of nodes at a time: no tensor is large
        work.add(whole)
        work.large, work.filed = work.large + (0 if plan.in_file else moved), moved if plan.in_file else 0
        graph.add_reading(plan, work)
        _add_scoring(sizes.scored_nodes, work)

    return PlannedEvaluation("layers", run, add, _scoring_bytes(graph, sizes), plan.disk)


def _scoring_bytes(graph: PlannedGraph, sizes: GraphSizes) -> int:
    """Return the bytes that a comparison of predictions with labels takes."""
    if graph.stored is None:
        return SCORED * sizes.nodes
    return SCORED * sizes.scored_nodes + sizes.nodes * (sizes.classes if sizes.multi_label else 2)


def _add_scoring(nodes: int, work: Work) -> None:
    """Add the comparison of predictions with labels."""
    work.scored += nodes
