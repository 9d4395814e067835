"""LADIES: layer-dependent importance sampling (Zou et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gistgnn.graphs.sizes import GraphSizes
from gistgnn.sampling.importance import ImportanceBatches, ImportanceSampling, with_replacement
from gistgnn.sampling.sampler import Array

_TRIES = 3


class LadiesBatches(ImportanceBatches):
    """The batches of `LadiesSampling`."""

    refuses = "LADIES, which weighs sampled nodes, does not define: train it by full, clusters, neighbor or saint-*"

    def _draw(self, rows: sp.csr_matrix, outputs: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        squares = self.structure.squares(rows, outputs)
        if np.count_nonzero(squares) <= count:
            nodes = np.flatnonzero(squares)
            return nodes, np.ones(len(nodes), np.float32)
        cumulated = squares.cumsum(dtype=np.float64)
        if not self._normalised:
            return with_replacement(cumulated, squares, count, rng)
        nodes = distinct(cumulated, squares, count, rng)
        return nodes, np.maximum(cumulated[-1] / (count * squares[nodes]), 1)


def distinct(cumulated: Array, weights: Array, count: int, rng: np.random.Generator) -> Array:
    """Draw nodes without replacement, each time in proportion to the weights of the nodes that are left.

    It first draws from all nodes and ignores repetitions. Where few nodes have most of the weight, that takes too long;
    then it draws the rest by exponential clocks, whose rates are the weights.

    Args:
        cumulated: the sums of the weights, [N] float64.
        weights: of every node; more than ``count`` are not 0.
        count: nodes to draw.
        rng: of the draws.
    """
    found = np.empty(0, np.int64)
    for _ in range(_TRIES):
        more = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right")
        found = np.concatenate([found, more])
        _, first = np.unique(found, return_index=True)
        found = found[np.sort(first)]
        if len(found) >= count:
            return found[:count]
    left = weights.copy()
    left[found] = 0
    nodes = np.flatnonzero(left)
    rings, missing = rng.standard_exponential(len(nodes)) / left[nodes], count - len(found)
    return np.concatenate([found, nodes[np.argpartition(rings, missing - 1)[:missing]]])


@dataclass(frozen=True)
class LadiesSampling(ImportanceSampling):
    """LADIES: layer-dependent importance sampling (Zou et al., 2019).

    A layer's input nodes are its output nodes O and s drawn nodes. The probabilities are p_j ∝ Σ_{i in O} Ā_ij², with Ā
    of eq. 1 and its self-loops: only neighbours of O are drawn, and most often those with many edges into O. Column j
    of Ā's rows O gets the weight 1 / (s p_j), or 1 where that is less or where j is in O. Other columns are left out.

    Args:
        batch_size: output nodes of a batch, on which the loss is.
        nodes_per_layer: s; or one number for each layer, the first layer's first.
        row_normalise: as the authors' code does, draw nodes without replacement, and scale each row to its sum in Ā.
            These sums vary less, and are biased. False: draw with replacement, and give each node the weight (times
            drawn) / (s p_j), which is unbiased.
        batches: see `Sampling`.
    """

    name = "ladies"
    made = LadiesBatches

    @staticmethod
    def candidates(graph: GraphSizes, linked: float) -> float:
        """Return the number of neighbours."""
        return graph.nodes * -math.expm1(-linked / graph.nodes)
