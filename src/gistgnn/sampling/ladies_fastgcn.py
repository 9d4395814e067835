"""LADIES (Zou et al., 2019) and FastGCN (Chen et al., 2018).

They draw the nodes of a layer by importance.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from gistgnn.graphs.named import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.layered import DrawnLayers, LayeredSampling
from gistgnn.sampling.sampler import Expected
from gistgnn.sampling.structure import Structure, pattern_of
from gistgnn.utils.checks import AtLeastOne
from gistgnn.utils.tensors import Array


@dataclass(frozen=True)
class ImportanceSampling(LayeredSampling):
    """The settings that `LadiesSampling` and `FastGCNSampling` have in common.

    A subclass draws the nodes.
    """

    per_layer = "nodes_per_layer"

    batch_size: AtLeastOne = 512
    nodes_per_layer: int | tuple[int, ...] = 512
    row_normalise: bool = True

    @abstractmethod
    def _draw(
        self,
        structure: Structure,
        rows: sp.csr_matrix,
        outputs: Array,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        """Draw ``count`` nodes; return the distinct ones, and the weights of their columns.

        ``rows`` are `Structure.values` of ``outputs``.
        """

    def draw_layers(
        self,
        structure: Structure,
        outputs: Array,
        numbers: tuple[int, ...],
        rng: np.random.Generator,
    ) -> DrawnLayers:
        """Draw the nodes of every layer, and keep all edges from them.

        See `LayeredSampling.draw_layers`.
        """
        layers: list[SampledAdjacency] = []
        all_degrees = structure.normalised if self.row_normalise else structure.degrees
        for count in reversed(numbers):
            rows = structure.values[outputs]
            drawn, importance = self._draw(structure, rows, outputs, count, rng)
            is_output = np.zeros(structure.nodes, bool)
            is_output[outputs] = True
            new = ~is_output[drawn]
            inputs = np.concatenate([outputs, drawn[new]])
            columns = torch.ones(len(inputs), dtype=all_degrees.plain.dtype)
            columns[len(outputs) :] = torch.from_numpy(importance[new])
            part = rows[:, inputs]
            pattern = pattern_of(part)
            degrees = all_degrees.of(torch.from_numpy(inputs))
            weight = columns.index_select(0, pattern.col)
            if "edge_weight" in structure.edge_data:
                weight *= torch.from_numpy(part.data)
            layers.insert(0, SampledAdjacency(pattern, degrees, weight, refuses=self.refuses))
            outputs = inputs
        return outputs, layers, {}

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count s more nodes for each layer, and the edges whose sources are drawn.

        See `candidates`.
        """
        nodes = [float(min(self.batch_size, graph.train))]
        edges = []
        for count in reversed(self.numbers(layers)):
            linked = nodes[-1] * graph.degree
            nodes.append(nodes[-1] + count)
            edges.append(linked * min(1, nodes[-1] / self.candidates(graph, linked)))
        return Expected.layered(graph, nodes, edges)

    @staticmethod
    def candidates(graph: GraphSizes, linked: float) -> float:
        """Return from how many nodes a layer with ``linked`` edges draws.

        It is the number for which all would be equally likely.
        """
        return graph.nodes


@dataclass(frozen=True)
class LadiesSampling(ImportanceSampling):
    """LADIES: layer-dependent importance sampling (Zou et al., 2019).

    A layer's input nodes are its output nodes O and s drawn nodes. The probabilities are p_j ∝ Σ_{i
    in O} Ā_ij², with Ā of eq. 1 and its self-loops: only neighbours of O are drawn, and most often
    those with many edges into O. Column j of Ā's rows O gets the weight 1 / (s p_j), or 1 where
    that is less or where j is in O. Other columns are left out.

    Args:
        batch_size: output nodes of a batch, on which the loss is.
        nodes_per_layer: s; or one number for each layer, the first layer's first.
        row_normalise: as the authors' code does, draw nodes without replacement, and scale each row
            to its sum in Ā. These sums vary less, and are biased. False: draw with replacement, and
            give each node the weight (times drawn) / (s p_j), which is unbiased.
    """

    name = "ladies"
    refuses = (
        "LADIES, which weighs sampled nodes, does not define: train it by full, clusters, "
        "neighbor or saint-*"
    )

    def _draw(
        self,
        structure: Structure,
        rows: sp.csr_matrix,
        outputs: Array,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        nodes, squares = structure.squares_above_zero(rows, outputs)
        if len(nodes) <= count:
            return nodes, np.ones(len(nodes), np.float32)
        if not self.row_normalise:
            places, importance = with_replacement(
                squares.cumsum(dtype=np.float64), squares, count, rng
            )
            return nodes[places], importance
        p = squares / squares.sum(dtype=np.float64)
        places = rng.choice(len(nodes), count, replace=False, p=p)
        return nodes[places], np.maximum(1 / (count * p[places]), 1)

    @staticmethod
    def candidates(graph: GraphSizes, linked: float) -> float:
        return graph.nodes * -math.expm1(-linked / graph.nodes)


@dataclass(frozen=True)
class FastGCNSampling(ImportanceSampling):
    """FastGCN: importance sampling with the same probabilities in every layer (Chen et al., 2018).

    A layer's input nodes are its output nodes and s nodes of the graph, drawn with replacement,
    neighbours or not. The probabilities are q_j ∝ Σ_i Ā_ij² over all rows i of Ā. Column j gets the
    weight (times drawn) / (s q_j), or 1 where j is an output node.

    Args:
        batch_size, nodes_per_layer: as for LADIES.
        row_normalise: scale each row to its sum in Ā. False: as published, which is unbiased.
    """

    name = "fastgcn"
    refuses = (
        "FastGCN, which weighs sampled nodes, does not define: train it by full, clusters, "
        "neighbor or saint-*"
    )

    def _draw(
        self,
        structure: Structure,
        rows: sp.csr_matrix,
        outputs: Array,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        return with_replacement(structure.cumulated_squares, structure.column_squares, count, rng)


def with_replacement(
    cumulated: Array, weights: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw nodes by weight; return the distinct ones, and (times drawn) / (count · p) of each."""
    drawn = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right")
    nodes, times = np.unique(drawn, return_counts=True)
    return nodes, (times * cumulated[-1] / (count * weights[nodes])).astype(np.float32)
