"""GraphSAINT (Zeng et al., 2020): batches are subgraphs; weights of edges and losses keep sums unbiased."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.expected import Expected
from gistgnn.sampling.saint_draws import Draw, EdgeDraw, NodeDraw, WalkDraw
from gistgnn.sampling.sampler import Array, RandomBatches, Sampling, check_draws
from gistgnn.sampling.structure import Structure, pattern_of
from gistgnn.utils.transfer import to_device


class SaintBatches(RandomBatches):
    """Subgraphs that are induced by the nodes of r = ``count`` independent draws.

    A batch holds node v with probability p_v = 1 - (1 - a_v)^r, and both ends of an edge with probability
    p_uv = p_u + p_v - 1 + (1 - a_u - a_v + a_uv)^r. An edge into v has weight p_v / p_uv: the sum over v's neighbours
    is unbiased wherever v is sampled. A training node's loss has weight 1 / (p_v · training nodes): the sum of these
    losses is an unbiased estimate of the mean loss over the whole graph.
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
        part.sort_indices()
        where, weights = torch.from_numpy(nodes), torch.from_numpy(self.weights(part, nodes))
        data = self._edge_data(nodes)
        if "edge_weight" in data:
            weights = weights * data["edge_weight"].to(weights)
        adj = SampledAdjacency(pattern_of(part), self._structure.degrees.of(where), weights)
        y, trains = self._structure.y, self._trains[nodes]
        weight = 1 / (self.sampled[nodes[trains]] * len(self._structure.train))
        return Batch(
            self._structure.features(where),
            adj.to(y.device),
            y.index_select(0, to_device(where, y.device)),
            to_device(torch.from_numpy(np.flatnonzero(trains)), y.device),
            sparse=self._structure.sparse,
            loss_weights=to_device(torch.from_numpy(weight).to(adj.dtype), y.device),
            edge_data=data,
        )

    def _edge_data(self, nodes: Array) -> dict[str, Tensor]:
        if not self._structure.edge_data:
            return {}
        part = self._structure.entries[nodes][:, nodes]
        part.sort_indices()
        return self._structure.data_of(part.data)

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
        if structure.edge_data and structure.repeats:
            raise InputError(
                f"{structure.repeats} edges join nodes that another edge joins, and {self.name} draws pairs of nodes: "
                "join such edges, by PyG's coalesce(), or train by full, clusters or neighbor"
            )
        check_draws("batch_size", self.batch_size, structure.nodes, each=1 + self._steps)
        draw = self._draw(structure, seed, share)
        return SaintBatches(structure, draw, self.batch_size, seed, independent=self.independent)

    @abstractmethod
    def _draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """Return the kind of draw; what it counts beforehand follows from the seed, and is shared."""

    @property
    def _steps(self) -> int:
        return 0  # nodes that a draw touches after its first

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count the subgraph of as many random nodes as the draws touch."""
        followed = self._steps * self.batch_size
        return Expected.induced(graph, self.batch_size + followed, followed)


@dataclass(frozen=True)
class SaintNodeSampling(SaintSampling):
    """GraphSAINT's node sampler; see `NodeDraw` and `SaintBatches`.

    Args:
        batch_size: draws for a batch; some nodes are drawn more than once.
        batches: see `Sampling`.
    """

    name = "saint-node"

    def _draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        return NodeDraw(structure)


@dataclass(frozen=True)
class SaintEdgeSampling(SaintSampling):
    """GraphSAINT's edge sampler; see `EdgeDraw` and `SaintBatches`.

    Args:
        batch_size: edges drawn for a batch; their ends are its nodes.
        batches: see `Sampling`.
    """

    name = "saint-edge"

    batch_size: int = 4000

    @property
    def _steps(self) -> int:
        return 1

    def _draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        return EdgeDraw(structure)


@dataclass(frozen=True)
class SaintWalkSampling(SaintSampling):
    """GraphSAINT's random-walk sampler; see `WalkDraw` and `SaintBatches`.

    Args:
        batch_size: walks of a batch.
        walk_length: steps of a walk.
        sample_coverage: walks from every node that are counted before training.
        batches: see `Sampling`.
    """

    name = "saint-rw"
    counts = ("batch_size", "walk_length", "sample_coverage")
    most: ClassVar[Mapping[str, int]] = {"walk_length": 1000, "sample_coverage": 100_000}

    batch_size: int = 2000
    walk_length: int = 2
    sample_coverage: int = 20

    @property
    def _steps(self) -> int:
        return self.walk_length

    def _draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        return WalkDraw(structure, self.walk_length, self.sample_coverage, seed, share)
