"""The memory of an evaluation, without values."""

from __future__ import annotations

from collections.abc import Mapping

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import Budget, Costs, plan_layers, whole_graph_bytes
from gistgnn.evaluation.by_parts import nodes_at_once
from gistgnn.nn import GNN
from gistgnn.planning.graph_memory import Clustered
from gistgnn.planning.ledger import Ledger, passing
from gistgnn.planning.sizes import GraphSizes
from gistgnn.sampling import Batch, ClusterSampling, forward

_SCORED = 100  # bytes for a node while predictions are compared with labels
UNLIMITED = 2**62


class Evaluating:
    """Rehearses evaluations of a model on a graph; what `Evaluation.prepare` chooses is chosen here likewise.

    Args:
        how: as the run says.
        gnn: the model.
        batch: the graph.
        sizes: of the graph.
        ledger: what is held already.
        limits: bytes that may be held in each place, for the evaluation that goes by what is available.
        reading: bytes that the weights take while they are read from files, or 0.

    Raises:
        InputError: layer by layer, with too little memory for any plan.
    """

    def __init__(
        self,
        how: Evaluation,
        gnn: GNN,
        batch: Batch,
        sizes: GraphSizes,
        ledger: Ledger,
        limits: Mapping[str, int],
        reading: int,
    ) -> None:
        self._gnn, self._batch, self._sizes = gnn, batch, sizes
        self.method = how.method
        self.disk = 0
        places = ["cpu"] + [batch.x.device.type] * (batch.x.device.type != "cpu")
        left = [(limits.get(place, UNLIMITED) - ledger.account(place).live) // 2 for place in places]
        least = Costs(gnn, batch, 0).least  # where there is less, the run does not fit, and the plan is to say so
        budget = Budget(*(how.memory or max(room, least) for room in left))
        if how.parts is not None:
            parts = min(how.parts, sizes.nodes)
            nodes = nodes_at_once(gnn, batch, budget, reading)
            together = min(max(nodes * parts // sizes.nodes, 1), how.sample or parts)
            expected = ClusterSampling(parts, together).expected(sizes.sizes, 1)
            self._parts = Clustered(batch, sizes, expected, precompute=False)
            return
        if how.method == "auto":
            self.method = "whole" if whole_graph_bytes(gnn, batch) <= budget.compute else "layers"
        if self.method == "layers":
            plan, costs = plan_layers(gnn, batch, budget), Costs(gnn, batch, budget.compute // 4)
            features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
            self._work = max(costs.preparing - costs.resident, plan.work + features)
            self._kept = passing(costs.resident, batch.x.device)
            self.disk = plan.disk

    def run(self) -> None:
        """Evaluate once."""
        if self.method == "whole":
            logits = forward(self._gnn, self._batch)
        elif self.method == "parts":
            nodes, classes = self._sizes.nodes, self._sizes.classes
            logits = self._batch.x.new_empty(nodes, classes)
            forward(self._gnn, next(self._parts.batches(1)))
        else:
            logits = passing(self._work, self._batch.x.device)
        del logits
        passing(_SCORED * self._sizes.nodes)
