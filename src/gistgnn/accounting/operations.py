"""How much computing a step and an evaluation take, by sizes alone, and how often a run is evaluated."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Self

from gistgnn.evaluation import Evaluation
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.partition import Partition
from gistgnn.sampling import Sampling, expected_batch
from gistgnn.sampling.sampler import Expected
from gistgnn.theta.model_spec import ModelSpec

SPARSE = 12  # multiply-adds of a dense product in the time of one of a sparse product
STEP = 2e7  # multiply-adds in the time that a step takes where it computes next to nothing
SHARE = 0.1  # of the time of training, which evaluation may take
LEAST = 3  # evaluations of a phase, whatever they take
LITTLE = 5e10  # multiply-adds of all evaluations of a phase, about a second: then there is one after every round


@dataclass(frozen=True)
class Operations:
    """Counts the multiply-adds of a run; the numbers follow from its settings, never from a clock.

    Args:
        spec: the full model.
        partition: of its axes.
        graph: the sizes of the whole graph.
        batch: the sizes of a batch.
        scored: the share of the graph that an evaluation runs on.
    """

    spec: ModelSpec
    partition: Partition
    graph: GraphSizes
    batch: Expected
    scored: float = 1.0

    @classmethod
    def of_run(
        cls,
        spec: ModelSpec,
        partition: Partition,
        graph: GraphSizes,
        sampling: Sampling | None,
        evaluation: Evaluation,
        *,
        inductive: bool,
    ) -> Self:
        """Count for a run with some settings; see `GIST.fit`."""
        seen = graph.training() if inductive else graph
        layers = getattr(spec.on_meta(), "num_layers", len(spec.widths) + 1)
        scored = evaluation.sample / evaluation.parts if evaluation.sample and evaluation.parts else 1.0
        return cls(spec, partition, graph, expected_batch(sampling, seen, layers), scored)

    def evaluate_every(self, sub_gcns: int | None, *, copies: bool, steps: int, rounds: int) -> int:
        """Return after how many rounds the model is evaluated, so that it takes a tenth of the time of training.

        There are `LEAST` evaluations in a phase at least. Where all of them take about a second together, there is one
        after every round.

        Args:
            sub_gcns: m; None: that of the partition.
            copies: only one sub-GCN trains, and is evaluated in place of the full model.
            steps: of all sub-GCNs that train, in a round.
            rounds: of the phase.
        """
        sub = self._narrow(sub_gcns)
        evaluation = self.scored * self._forward(sub if copies else self.spec, self.graph.nodes, self.graph.edges)
        if evaluation * rounds <= LITTLE:
            return 1
        step = STEP + 3 * self._forward(sub, self.batch.nodes[0], self.batch.edges[0])  # backward: twice as much
        return max(1, min(ceil(evaluation / (SHARE * steps * step)), ceil(rounds / LEAST)))

    def _narrow(self, sub_gcns: int | None) -> ModelSpec:
        """The model of the first sub-GCN."""
        partition = self.partition if sub_gcns is None else self.partition.split_into(sub_gcns)
        blocks = partition.sizes(0)[0]
        return replace(self.spec, widths=self.spec.layout.widths(blocks))

    @staticmethod
    def _forward(spec: ModelSpec, nodes: float, edges: float) -> float:
        """Every weight multiplies a feature of every node, and every hidden feature goes along every edge."""
        weights = sum(tensor.shape.numel() for tensor in spec.tensor_specs().values() if len(tensor.shape) > 1)
        return nodes * weights + SPARSE * edges * sum(spec.widths)
