"""GraphSAINT (Zeng et al., 2020): batches are subgraphs; weights of edges and losses keep sums unbiased."""

from __future__ import annotations

import math
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
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.sampler import Array, Expected, RandomBatches, Sampling, check_draws
from gistgnn.sampling.structure import Structure, pattern_of
from gistgnn.utils.random_streams import generator
from gistgnn.utils.transfer import to_device

_CHUNK = 2**20  # walks that are counted at once


class Draw:
    """Draws the nodes of one random walk of ``length`` steps from a random node, each to a random in-neighbour."""

    touches: Array  # a_v, the probability that one draw touches node v: [N] float64
    edges: sp.csr_matrix  # of the graph; `WalkDraw` holds a_uv in place of the entries 1, for `together`
    length: int

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes that ``count`` draws touch, in any order, with repetitions."""
        return np.concatenate(_walks(self.edges, count, self.length, rng))

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array | float:
        """Return a_uv, the probability that one draw touches both ends of an edge: [nnz], or one number for all.

        ``part`` is `edges` among ``nodes``, and ``rows`` the row of each of its entries.
        """
        return 0.0  # a draw of one node


class NodeDraw(Draw):
    """Draws one node u with probability P(u) ∝ Σ_v Ã_vu², where Ã = D̃^-1 (A + I) (GraphSAINT, section 3.3).

    GraphSAINT uses D^-1 A, which never draws a node without outgoing edges.
    """

    length = 0

    def __init__(self, structure: Structure) -> None:
        looped = structure.counts.numpy() + structure.missing_loops  # in-degrees in A + I; edge weights do not count
        inverse = (1 / looped).astype(np.float64) ** 2
        squares = structure.edges.T @ inverse + structure.missing_loops * inverse
        self.touches, self.edges = squares / squares.sum(), structure.edges
        self._cumulated = self.touches.cumsum()

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes of ``count`` draws."""
        return np.searchsorted(self._cumulated, rng.random(count) * self._cumulated[-1], side="right")


class EdgeDraw(Draw):
    """Draws both ends of one edge with probability ∝ 1/deg(u) + 1/deg(v) (GraphSAINT, section 3.3).

    That is a walk of one step. A node without in-neighbours comes alone.
    """

    length = 1

    def __init__(self, structure: Structure) -> None:
        self.edges = structure.edges
        degree = np.diff(self.edges.indptr)
        self._chosen = 1 / (len(degree) * np.maximum(degree, 1))  # 1 / (N deg), of each in-edge of a node
        loops = self.edges.diagonal() * self._chosen  # they touch one node, not two
        self.touches = 1 / len(degree) + self.edges.T @ self._chosen - loops

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array:
        """Return the chance of the edge, plus the chance of the edge in the other direction."""
        part.sort_indices()  # the sum below is sorted
        back = (part + part.multiply(part.T)).data - 1
        chosen = self._chosen[nodes]
        return chosen[rows] + back * chosen[part.indices]


class WalkDraw(Draw):
    """Draws a walk. Its probabilities have no closed form.

    Before training they are counted over ``coverage`` walks from every node: weights are exact up to that noise.
    """

    def __init__(self, structure: Structure, length: int, coverage: int, seed: int) -> None:
        edges = structure.edges
        counts = _counted(edges, length, coverage, generator(seed, "counted walks"))
        self.length, self.touches = length, counts["touches"].numpy()
        self.edges = sp.csr_matrix((counts["together"].numpy(), edges.indices, edges.indptr), shape=edges.shape)

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array:
        """Return the counted shares."""
        return part.data.astype(np.float64)


def _walks(edges: sp.csr_matrix, roots: int | Array, length: int, rng: np.random.Generator) -> list[Array]:
    """Return where walks are after 0, 1, ..., length steps, [n] each; ``roots`` may be a number of random ones.

    A step goes to a random in-neighbour, or stays where there is none.
    """
    walks = [rng.integers(edges.shape[0], size=roots) if isinstance(roots, int) else roots]
    for _ in range(length):
        starts = edges.indptr[walks[-1]]
        degree = edges.indptr[walks[-1] + 1] - starts
        entries = starts + (rng.random(len(starts)) * degree).astype(starts.dtype)
        sources = edges.indices[np.minimum(entries, len(edges.indices) - 1)]
        walks.append(np.where(degree > 0, sources, walks[-1]))
    return walks


def _counted(edges: sp.csr_matrix, length: int, coverage: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return the shares of walks that touch each node, [N] float64, and both ends of each edge, [E] float32."""
    nodes = edges.shape[0]
    visits, together = np.zeros(nodes, np.int64), np.zeros(edges.nnz, np.float32)
    numbers = sp.csr_matrix((np.arange(1, edges.nnz + 1), edges.indices, edges.indptr), shape=edges.shape)
    roots = np.tile(np.arange(nodes), coverage)
    for start in range(0, len(roots), _CHUNK):
        walks = _walks(edges, roots[start : start + _CHUNK], length, rng)
        fresh = [np.all([walk != earlier for earlier in walks[:t]], axis=0) for t, walk in enumerate(walks)]
        fresh[0] = np.ones(len(walks[0]), bool)
        for t, walk in enumerate(walks):
            visits += np.bincount(walk[fresh[t]], minlength=nodes)
            for s in range(t):
                both = fresh[s] & fresh[t]
                if not both.any():
                    continue
                for one, other in ((walks[s][both], walk[both]), (walk[both], walks[s][both])):
                    entries = np.asarray(numbers[one, other]).ravel()
                    np.add.at(together, entries[entries > 0] - 1, 1)
    return {"touches": torch.from_numpy(visits / len(roots)), "together": torch.from_numpy(together / len(roots))}


class SaintBatches(RandomBatches):
    """Subgraphs that are induced by the nodes of r = ``count`` independent draws.

    A batch holds node v with probability p_v = 1 - (1 - a_v)^r, and both ends of an edge with probability
    p_uv = p_u + p_v - 1 + (1 - a_u - a_v + a_uv)^r. An edge into v has weight p_v / p_uv: the sum over v's neighbours
    is unbiased wherever v is sampled. A training node's loss has weight 1 / (p_v · training nodes): the sum of these
    losses is an unbiased estimate of the mean loss over the whole graph.
    """

    def __init__(self, structure: Structure, draw: Draw, count: int, seed: int = 0, independent: bool = False) -> None:
        super().__init__(seed, independent=independent)
        self._structure, self._draw, self._count = structure, draw, count
        self.sampled = self._in_any_draw(draw.touches)
        self._trains = np.zeros(structure.nodes, bool)
        self._trains[structure.train] = True
        expected = float(self.sampled[structure.train].sum())  # training nodes of a batch
        self.steps_per_epoch = max(1, round(len(structure.train) / expected))

    def _in_any_draw(self, probability: Array) -> Array:
        """Return the probability of an event in any of the r draws, from its probability in one draw."""
        with np.errstate(divide="ignore"):  # one draw may be certain to do it
            return -np.expm1(self._count * np.log1p(-np.minimum(probability, 1)))

    def _drawn(self, first_step: int, steps: int) -> Iterator[int]:
        return iter(range(first_step, first_step + steps))

    def make(self, step: int) -> Batch:
        """Return the subgraph of the step's draws."""
        structure, y = self._structure, self._structure.y
        chosen = np.zeros(structure.nodes, bool)
        chosen[self._draw.nodes(self._count, self._generator("layers", step))] = True
        nodes = np.flatnonzero(chosen)
        part = _within(self._draw.edges, nodes)
        where, weights = torch.from_numpy(nodes), torch.from_numpy(self.weights(part, nodes))
        data = structure.data_of(_within(structure.entries, nodes).data) if structure.edge_data else {}
        if "edge_weight" in data:
            weights = weights * data["edge_weight"].to(weights)
        adj = SampledAdjacency(pattern_of(part), structure.degrees.of(where), weights)
        trains = self._trains[nodes]
        weight = 1 / (self.sampled[nodes[trains]] * len(structure.train))
        return Batch(
            structure.features(where),
            adj.to(y.device),
            y.index_select(0, to_device(where, y.device)),
            to_device(torch.from_numpy(np.flatnonzero(trains)), y.device),
            sparse=structure.sparse,
            loss_weights=to_device(torch.from_numpy(weight).to(adj.dtype), y.device),
            edge_data=data,
        )

    def weights(self, part: sp.csr_matrix, nodes: Array) -> Array:
        """Return p_v / p_uv of every edge among some nodes: [nnz] float32; ``part`` as for `Draw.together`."""
        rows = np.arange(len(nodes)).repeat(np.diff(part.indptr))
        sampled, touches = self.sampled[nodes], self._draw.touches[nodes]
        into, out = sampled[rows], sampled[part.indices]
        either = touches[rows] + touches[part.indices] - self._draw.together(part, rows, nodes)
        both = into + out - self._in_any_draw(either)
        return np.where(rows == part.indices, 1, into / both).astype(np.float32)


def _within(matrix: sp.csr_matrix, nodes: Array) -> sp.csr_matrix:
    """Return the rows and columns of a matrix at some nodes, with sorted columns."""
    part = matrix[nodes][:, nodes]
    part.sort_indices()
    return part


@dataclass(frozen=True)
class SaintSampling(Sampling):
    """The settings that the three kinds have in common."""

    draws: ClassVar[type[NodeDraw | EdgeDraw]]

    batch_size: int = 6000

    def sampler(self, whole: Batch, seed: int, layers: int | None = None) -> SaintBatches:
        """Return the sampler; see `Sampling.sampler`."""
        structure = Structure(whole)
        if structure.edge_data and structure.repeats:
            raise InputError(
                f"{structure.repeats} edges join nodes that another edge joins, and {self.name} draws pairs of nodes: "
                "join such edges, by PyG's coalesce(), or train by full, clusters or neighbor"
            )
        check_draws("batch_size", self.batch_size, structure.nodes, each=1 + self._steps)
        draw = self._draw(structure, seed)
        return SaintBatches(structure, draw, self.batch_size, seed, self.batches == "independent")

    def _draw(self, structure: Structure, seed: int) -> Draw:
        return self.draws(structure)

    @property
    def _steps(self) -> int:
        """Edges that a draw follows."""
        return self.draws.length

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count the subgraph of as many random nodes as the draws touch; some of them are reached along an edge."""
        followed = self._steps * self.batch_size
        share = -math.expm1(-(self.batch_size + followed) / graph.nodes)
        edges = graph.edges * share**2 + 2 * followed
        return Expected.subgraph(graph, graph.nodes * share, edges, sampled=True)


@dataclass(frozen=True)
class SaintNodeSampling(SaintSampling):
    """GraphSAINT's node sampler; see `NodeDraw` and `SaintBatches`.

    Args:
        batch_size: draws for a batch; some nodes are drawn more than once.
        batches: see `Sampling`.
    """

    name = "saint-node"
    draws = NodeDraw


@dataclass(frozen=True)
class SaintEdgeSampling(SaintSampling):
    """GraphSAINT's edge sampler; see `EdgeDraw` and `SaintBatches`.

    Args:
        batch_size: edges drawn for a batch; their ends are its nodes.
        batches: see `Sampling`.
    """

    name = "saint-edge"
    draws = EdgeDraw

    batch_size: int = 4000


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

    def _draw(self, structure: Structure, seed: int) -> Draw:
        return WalkDraw(structure, self.walk_length, self.sample_coverage, seed)
