"""FastGCN: importance sampling with the same probabilities in every layer (Chen et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gistgnn.graphs.sizes import GraphSizes
from gistgnn.sampling.importance import ImportanceBatches, ImportanceSampling, with_replacement
from gistgnn.sampling.sampler import Array
from gistgnn.sampling.structure import Structure


class FastGCNBatches(ImportanceBatches):
    """The batches of `FastGCNSampling`."""

    refuses = "FastGCN, which weighs sampled nodes, does not define: train it by full, clusters, neighbor or saint-*"

    def __init__(self, structure: Structure, *args: Any, **options: Any) -> None:
        super().__init__(structure, *args, **options)
        self._cumulated = structure.column_squares.cumsum(dtype=np.float64)

    def _draw(self, rows: sp.csr_matrix, outputs: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return with_replacement(self._cumulated, self.structure.column_squares, count, rng)


@dataclass(frozen=True)
class FastGCNSampling(ImportanceSampling):
    """FastGCN: importance sampling with the same probabilities in every layer (Chen et al., 2018).

    A layer's input nodes are its output nodes and s nodes of the graph, drawn with replacement, neighbours or not. The
    probabilities are q_j ∝ Σ_i Ā_ij² over all rows i of Ā. Column j gets the weight (times drawn) / (s q_j), or 1 where
    j is an output node.

    Args:
        batch_size: as for LADIES.
        nodes_per_layer: as for LADIES.
        row_normalise: scale each row to its sum in Ā. False: as published, which is unbiased.
        batches: see `Sampling`.
    """

    name = "fastgcn"
    made = FastGCNBatches

    @staticmethod
    def candidates(graph: GraphSizes, linked: float) -> float:
        """Return the number of all nodes."""
        return graph.nodes
