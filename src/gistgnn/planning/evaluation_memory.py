"""The memory of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import nn

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import Budget, Costs, plan_layers, whole_graph_bytes
from gistgnn.evaluation.parts import nodes_at_once
from gistgnn.nn import GNN
from gistgnn.planning.graph_memory import PlannedBatches
from gistgnn.planning.ledger import Ledger, filler
from gistgnn.planning.sizes import GraphSizes
from gistgnn.sampling import Batch, ClusterSampling, forward

_SCORED = 100  # bytes for a node while predictions are compared with labels
_UNLIMITED = 2**62


class PlannedEvaluation:
    """Chooses how a model is evaluated, as `Evaluation.prepare` does, and holds what that takes.

    Args:
        evaluation: the run's.
        model: a `GNN`.
        batch: the graph.
        sizes: of the graph.
        ledger: what is held already.
        limits: bytes that may be held in each place; evaluation may take half of what is left.
        reading: bytes that the weights take while they are read from elsewhere, or 0.

    Attributes:
        method: "whole", "layers" or "parts".
        disk: bytes of temporary files.

    Raises:
        InputError: too little memory for any evaluation layer by layer.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        model: nn.Module,
        batch: Batch,
        sizes: GraphSizes,
        ledger: Ledger,
        limits: Mapping[str, int],
        reading: int,
    ) -> None:
        gnn = cast(GNN, model)
        self._model, self._batch, self._sizes = gnn, batch, sizes
        self.method, self.disk = evaluation.method, 0
        places = dict.fromkeys(("cpu", batch.x.device.type))
        left = [(limits.get(place, _UNLIMITED) - ledger.account(place).live) // 2 for place in places]
        least = Costs(gnn, batch, 0).least  # where there is less, the run does not fit, and the plan is to say so
        budget = Budget(*(evaluation.memory or max(room, least) for room in left))
        if evaluation.parts is not None:
            parts = min(evaluation.parts, sizes.nodes)
            together = nodes_at_once(gnn, batch, budget, reading) * parts // sizes.nodes
            sampling = ClusterSampling(parts, min(max(together, 1), evaluation.sample or parts), precompute=False)
            self._parts = PlannedBatches(batch, sampling.expected(sizes, 1), ledger, sampling).for_sub_gcn(1)
            return
        if evaluation.method == "auto":
            self.method = "whole" if whole_graph_bytes(gnn, batch) <= budget.compute else "layers"
        if self.method == "layers":
            plan, costs = plan_layers(gnn, batch, budget), Costs(gnn, batch, budget.compute // 4)
            features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
            self._work = max(costs.preparing - costs.resident, plan.work + features)
            self._kept = filler(costs.resident, batch.x.device)
            self.disk = plan.disk

    def run(self) -> None:
        """Evaluate once."""
        x = self._batch.x
        if self.method == "layers":
            logits = filler(self._work, x.device)
        elif self.method == "whole":
            logits = forward(self._model, self._batch)
        else:
            logits = x.new_empty(self._sizes.nodes, self._sizes.classes)
            forward(self._model, next(self._parts.batches(0, 1)))
        del logits
        filler(_SCORED * self._sizes.nodes)
