"""What LADIES and FastGCN have in common: they draw the nodes of a layer by importance."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch

from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.expected import Expected
from gistgnn.sampling.layered import LayeredBatches, check_counts, each_layer
from gistgnn.sampling.sampler import Array, Sampling
from gistgnn.sampling.structure import Structure, pattern_of


class ImportanceBatches(LayeredBatches):
    """Batches whose nodes are drawn by importance; a subclass draws them.

    Args:
        structure: the graph.
        counts: s of every layer.
        batch_size: output nodes.
        seed: of the batches.
        row_normalise: see `LadiesSampling`.
        independent: see `RandomBatches`.
    """

    def __init__(
        self,
        structure: Structure,
        counts: tuple[int, ...],
        batch_size: int,
        seed: int = 0,
        *,
        row_normalise: bool = True,
        independent: bool = False,
    ) -> None:
        super().__init__(structure, batch_size, seed, independent=independent)
        self._counts, self._normalised = counts, row_normalise
        if row_normalise:
            self.degrees = structure.normalised()

    @abstractmethod
    def _draw(self, rows: sp.csr_matrix, outputs: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return distinct nodes and the weights of their columns; ``rows`` are A's rows of the nodes ``outputs``."""

    def _layers(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, list[SampledAdjacency]]:
        layers: list[SampledAdjacency] = []
        for count in reversed(self._counts):
            rows = self.structure.edges[outputs]
            drawn, importance = self._draw(rows, outputs, count, rng)
            known = np.zeros(self.structure.nodes, bool)
            known[outputs] = True
            new = ~known[drawn]
            inputs = np.concatenate([outputs, drawn[new]])
            columns = torch.ones(len(inputs), dtype=self.degrees.plain.dtype)
            columns[len(outputs) :] = torch.from_numpy(importance[new])
            pattern = pattern_of(rows[:, inputs])
            degrees = self.degrees.of(torch.from_numpy(inputs))
            weight = columns.index_select(0, pattern.col)
            layers.insert(0, SampledAdjacency(pattern, degrees, weight, refuses=self.refuses))
            outputs = inputs
        return outputs, layers


def with_replacement(cumulated: Array, weights: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw nodes with probabilities p in proportion to weights.

    Args:
        cumulated: the sums of the weights, [N] float64.
        weights: of every node, [N].
        count: draws.
        rng: of the draws.

    Returns:
        The distinct nodes that were drawn, and for each of them (times drawn) / (count · p).
    """
    drawn = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right")
    nodes, times = np.unique(drawn, return_counts=True)
    return nodes, (times * cumulated[-1] / (count * weights[nodes])).astype(np.float32)


@dataclass(frozen=True)
class ImportanceSampling(Sampling):
    """The settings that `LadiesSampling` and `FastGCNSampling` have in common."""

    made: ClassVar[type[ImportanceBatches]]

    batch_size: int = 512
    nodes_per_layer: int | tuple[int, ...] = 512
    row_normalise: bool = True

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        object.__setattr__(self, "nodes_per_layer", check_counts("nodes_per_layer", self.nodes_per_layer))

    def sampler(self, whole: Batch, seed: int, share: Share = unshared, layers: int | None = None) -> ImportanceBatches:
        """Return the sampler; see `Sampling.sampler`."""
        counts = each_layer("nodes_per_layer", self.nodes_per_layer, layers)
        options = {"row_normalise": self.row_normalise, "independent": self.independent}
        return self.made(Structure(whole, share), counts, self.batch_size, seed, **options)

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count s more nodes for each layer, and the edges whose sources are drawn (see `candidates`)."""
        nodes, edges = [float(min(self.batch_size, graph.train))], []
        for count in reversed(each_layer("nodes_per_layer", self.nodes_per_layer, layers)):
            linked = nodes[-1] * graph.degree
            nodes.append(nodes[-1] + count)
            edges.append(linked * min(1, nodes[-1] / self.candidates(graph, linked)))
        return Expected.layered(graph, nodes, edges)

    @staticmethod
    @abstractmethod
    def candidates(graph: GraphSizes, linked: float) -> float:
        """Return from how many nodes a layer with ``linked`` edges draws, if all were equally likely."""
