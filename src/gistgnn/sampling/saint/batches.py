"""GraphSAINT (Zeng et al., 2020): batches are subgraphs; weights of edges and losses keep sums unbiased."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.expected import Expected
from gistgnn.sampling.sampler import Array, RandomBatches, Sampling
from gistgnn.sampling.structure import Structure, pattern_of


class Draw(ABC):
    """A way to draw a few nodes at random. A batch is the subgraph that r draws induce.

    Attributes:
        touches: a_v, the probability that one draw touches node v: [N] float64.
        edges: of the graph. A subclass may hold a_uv in place of the entries 1, for `together`.
    """

    touches: Array
    edges: sp.csr_matrix

    @abstractmethod
    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes that ``count`` draws touch, in any order, with repetitions."""

    @abstractmethod
    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array | float:
        """Return a_uv, the probability that one draw touches both ends of an edge: [nnz], or one number for all.

        Args:
            part: the rows and columns of `edges` at some nodes.
            rows: row of every entry of ``part``.
            nodes: the numbers of these nodes.
        """


class SaintBatches(RandomBatches):
    """Subgraphs that are induced by the nodes of r independent draws.

    A batch holds node v with probability p_v = 1 - (1 - a_v)^r, and both ends of an edge with probability
    p_uv = p_u + p_v - 1 + (1 - a_u - a_v + a_uv)^r. An edge into v has weight p_v / p_uv: the sum over v's neighbours
    is unbiased wherever v is sampled. A training node's loss has weight 1 / (p_v · training nodes): the sum of these
    losses is an unbiased estimate of the mean loss over the whole graph.

    Args:
        structure: the graph.
        draw: the kind of draw.
        count: r.
        seed: of the batches.
        independent: see `RandomBatches`.
    """

    def __init__(
        self, structure: Structure, draw: Draw, count: int, seed: int = 0, *, independent: bool = False
    ) -> None:
        super().__init__(seed, independent=independent)
        self._structure, self._draw, self._count = structure, draw, count
        self.sampled = self.touched_by(draw.touches)
        self._trains = np.zeros(structure.nodes, bool)
        self._trains[structure.train] = True
        expected = float(self.sampled[structure.train].sum())  # training nodes of a batch
        self.steps_per_epoch = max(1, round(len(structure.train) / expected))

    def touched_by(self, probability: Array) -> Array:
        """Return the probability that any of the r draws does something, from the probability that one draw does."""
        with np.errstate(divide="ignore"):  # one draw may be certain to do it
            return -np.expm1(self._count * np.log1p(-np.minimum(probability, 1)))

    def _drawn(self, first_step: int, steps: int) -> Iterator[int]:
        return iter(range(first_step, first_step + steps))

    def _make(self, step: int) -> Batch:
        chosen = np.zeros(self._structure.nodes, bool)
        chosen[self._draw.nodes(self._count, self._generator("layers", step))] = True
        nodes = np.flatnonzero(chosen)
        part = self._draw.edges[nodes][:, nodes]
        where, weights = torch.from_numpy(nodes), torch.from_numpy(self.weights(part, nodes))  # may sort the part
        adj = SampledAdjacency(pattern_of(part), self._structure.degrees.of(where), weights)
        y, trains = self._structure.y, self._trains[nodes]
        weight = 1 / (self.sampled[nodes[trains]] * len(self._structure.train))
        return Batch(
            self._structure.features(where),
            adj.to(y.device),
            y.index_select(0, where.to(y.device)),
            torch.from_numpy(np.flatnonzero(trains)).to(y.device),
            sparse=self._structure.sparse,
            loss_weights=torch.from_numpy(weight).to(y.device, adj.dtype),
        )

    def weights(self, part: sp.csr_matrix, nodes: Array) -> Array:
        """Return p_v / p_uv of every edge among some nodes: [nnz] float32; ``part`` as for `Draw.together`."""
        rows = np.arange(len(nodes)).repeat(np.diff(part.indptr))
        sampled, touches = self.sampled[nodes], self._draw.touches[nodes]
        into, out = sampled[rows], sampled[part.indices]
        either = touches[rows] + touches[part.indices] - self._draw.together(part, rows, nodes)
        both = into + out - self.touched_by(either)
        return np.where(rows == part.indices, 1, into / both).astype(np.float32)


@dataclass(frozen=True)
class SaintSampling(Sampling):
    """The settings that the three kinds have in common."""

    batch_size: int = 6000

    def sampler(self, whole: Batch, seed: int, share: Share = unshared, layers: int | None = None) -> SaintBatches:
        """Return the sampler; see `Sampling.sampler`."""
        structure = Structure(whole, share)
        draw = self.draw(structure, seed, share)
        return SaintBatches(structure, draw, self.batch_size, seed, independent=self.independent)

    @abstractmethod
    def draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """Return the kind of draw; what it counts beforehand follows from the seed, and is shared."""

    @property
    def touched(self) -> int:
        """Number of nodes that the draws of a batch touch, with repetitions."""
        return self.batch_size

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count the subgraph of as many random nodes."""
        return Expected.induced(graph, self.touched, self.touched - self.batch_size)
