"""GraphSAINT (Zeng et al., 2020), whose batches are subgraphs.

Weights of edges and losses keep sums unbiased.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.named import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.sampler import Expected, RandomBatches, Sampling
from gistgnn.sampling.structure import Structure, pattern_of
from gistgnn.utils.checks import AtLeastOne
from gistgnn.utils.random_streams import generator
from gistgnn.utils.tensors import Array, to_device

_CHUNK = 2**20  # walks that are counted at once


class SaintBatches(RandomBatches):
    """Subgraphs that are induced by the nodes of r = `batch_size` independent draws.

    A batch holds node v with probability p_v = 1 - (1 - a_v)^r, and both ends of an edge with
    probability p_uv = p_u + p_v - 1 + (1 - a_u - a_v + a_uv)^r. An edge into v has weight p_v /
    p_uv: the sum over v's neighbours is unbiased wherever v is sampled. A training node's loss has
    weight 1 / (p_v · training nodes), so that the sum of these losses is an unbiased estimate of
    the mean loss over the whole graph.
    """

    def __init__(self, structure: Structure, settings: "SaintSampling", seed: int = 0) -> None:
        super().__init__(seed, independent=settings.batches == "independent")
        self._structure = structure
        self._settings = settings
        self.touches, self.edges = settings.probabilities(structure, seed)
        self.sampled = self._in_any_draw(self.touches)
        self._cumulated = self.touches.cumsum()
        self._trains = np.zeros(structure.nodes, bool)
        self._trains[structure.train] = True
        expected = float(self.sampled[structure.train].sum())  # training nodes of a batch
        self.steps_per_epoch = max(1, round(len(structure.train) / expected))

    def _in_any_draw(self, probability: Array) -> Array:
        """Return the probability of an event in any of the r draws.

        ``probability`` is that of the event in one draw.
        """
        with np.errstate(divide="ignore"):  # one draw may be certain to do it
            return -np.expm1(self._settings.batch_size * np.log1p(-np.minimum(probability, 1)))

    def _drawn(self, first_step: int, steps: int) -> Iterator[int]:
        return iter(range(first_step, first_step + steps))

    def make(self, step: int) -> Batch:
        structure = self._structure
        y = structure.y
        rng = self._generator("layers", step)
        chosen = np.zeros(structure.nodes, bool)
        if self._settings.length:
            walks = _walks(self.edges, self._settings.batch_size, self._settings.length, rng)
            chosen[np.concatenate(walks)] = True
        else:
            draws = rng.random(self._settings.batch_size) * self._cumulated[-1]
            chosen[np.searchsorted(self._cumulated, draws, side="right")] = True
        nodes = np.flatnonzero(chosen)
        part = _within(self.edges, nodes)
        node_numbers = torch.from_numpy(nodes)
        weights = torch.from_numpy(self.weights(part, nodes))
        data = {}
        if structure.edge_data:
            data = structure.data_of(_within(structure.entries, nodes).data)
        if "edge_weight" in data:
            weights = weights * data["edge_weight"].to(weights)
        adj = SampledAdjacency(pattern_of(part), structure.degrees.of(node_numbers), weights)
        trains = self._trains[nodes]
        loss_nodes = torch.from_numpy(np.flatnonzero(trains))
        loss_weights = torch.from_numpy(1 / (self.sampled[nodes[trains]] * len(structure.train)))
        return Batch(
            structure.features(node_numbers),
            adj.to(y.device),
            y.index_select(0, to_device(node_numbers, y.device)),
            to_device(loss_nodes, y.device),
            sparse=structure.sparse,
            loss_weights=to_device(loss_weights.to(adj.dtype), y.device),
            edge_data=data,
        )

    def weights(self, part: sp.csr_matrix, nodes: Array) -> Array:
        """Return p_v / p_uv of every edge among some nodes: [nnz] float32.

        They are in the order of ``part``.
        """
        rows = np.arange(len(nodes)).repeat(np.diff(part.indptr))
        sampled = self.sampled[nodes]
        touches = self.touches[nodes]
        together = self._settings.together(
            part, rows, self._structure.counts.numpy()[nodes], self._structure.nodes
        )
        into = sampled[rows]
        out = sampled[part.indices]
        both_sampled = (
            into + out - self._in_any_draw(touches[rows] + touches[part.indices] - together)
        )
        return np.where(rows == part.indices, 1, into / both_sampled).astype(np.float32)


def _walks(
    edges: sp.csr_matrix, roots: int | Array, length: int, rng: np.random.Generator
) -> list[Array]:
    """Return where walks are after 0, ..., length steps to random in-neighbours.

    ``roots`` are the nodes where they begin, [n], or how many walks begin at random nodes.
    """
    if isinstance(roots, int):
        roots = rng.integers(edges.shape[0], size=roots)
    walks = [roots]
    for _ in range(length if edges.nnz else 0):
        starts = edges.indptr[walks[-1]]
        degree = edges.indptr[walks[-1] + 1] - starts
        entries = starts + (rng.random(len(starts)) * degree).astype(starts.dtype)
        # A node without edges may be the last one, behind whose start there is no entry.
        sources = edges.indices[np.minimum(entries, len(edges.indices) - 1)]
        walks.append(np.where(degree > 0, sources, walks[-1]))
    return walks


def _within(matrix: sp.csr_matrix, nodes: Array) -> sp.csr_matrix:
    """Return the rows and columns of a matrix at some nodes, with sorted columns."""
    part = matrix[nodes][:, nodes]
    part.sort_indices()
    return part


@dataclass(frozen=True)
class SaintSampling(Sampling):
    """What GraphSAINT's three samplers have in common.

    A draw is a random node, or a walk from one along the edges.
    """

    batch_size: AtLeastOne = 6000

    @property
    def length(self) -> int:
        """Steps of a walk; without steps a draw is one node."""
        return 0

    @abstractmethod
    def probabilities(self, structure: Structure, seed: int) -> tuple[Array, sp.csr_matrix]:
        """Return a_v, the probability that one draw touches node v, and the edges.

        They are [N] float64 and [N, N].
        """

    def together(
        self, part: sp.csr_matrix, rows: Array, degrees: Array, nodes: int
    ) -> Array | float:
        """Return a_uv, the probability that a draw touches both ends of an edge of ``part``.

        It is [nnz], or one number for all edges.
        """
        return 0.0

    def sampler(self, full_batch: Batch, seed: int, layers: int | None = None) -> SaintBatches:
        structure = Structure(full_batch)
        if not structure.edges.has_canonical_format:  # Edges are repeated, or not in order.
            distinct = structure.edges.copy()
            distinct.sum_duplicates()
            if repeats := structure.edges.nnz - distinct.nnz:
                raise InputError(
                    f"{repeats} edges join nodes that another edge joins, and {self.name} draws "
                    "pairs of nodes: "
                    "join such edges, by PyG's coalesce(), or train by full, clusters or neighbor"
                )
        return SaintBatches(structure, self, seed)

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count the subgraph of as many random nodes as the draws touch.

        Some of these nodes are reached along an edge.
        """
        followed = self.length * self.batch_size
        share = -math.expm1(-(self.batch_size + followed) / graph.nodes)
        edges = graph.edges * share**2 + 2 * followed
        return Expected.subgraph(graph, graph.nodes * share, edges, sampled=True)


@dataclass(frozen=True)
class SaintNodeSampling(SaintSampling):
    """GraphSAINT's node sampler (section 3.3).

    Node u has probability P(u) ∝ Σ_v Ã_vu², where Ã = D̃^-1 (A + I). GraphSAINT uses D^-1 A, which
    never draws a node without outgoing edges. See `SaintBatches`.

    Args:
        batch_size: draws for a batch; some nodes are drawn more than once.
    """

    name = "saint-node"

    def probabilities(self, structure: Structure, seed: int) -> tuple[Array, sp.csr_matrix]:
        # These are in-degrees in A + I; edge weights do not count.
        looped = structure.counts.numpy() + structure.missing_loops
        inverse = (1 / looped).astype(np.float64) ** 2
        squares = structure.edges.T @ inverse + structure.missing_loops * inverse
        return squares / squares.sum(), structure.edges


@dataclass(frozen=True)
class SaintEdgeSampling(SaintSampling):
    """GraphSAINT's edge sampler (section 3.3).

    It draws both ends of an edge, with probability ∝ 1/deg(u) + 1/deg(v). That is a walk of one
    step. A node without in-neighbours comes alone. See `SaintBatches`.

    Args:
        batch_size: edges drawn for a batch; their ends are its nodes.
    """

    name = "saint-edge"

    batch_size: AtLeastOne = 4000

    @property
    def length(self) -> int:
        return 1

    def probabilities(self, structure: Structure, seed: int) -> tuple[Array, sp.csr_matrix]:
        """Count a node as the start of a step, and as its end, but a self-loop once."""
        chosen = _chance(structure.counts.numpy(), structure.nodes)
        loops = structure.loops.numpy() * chosen
        return 1 / structure.nodes + structure.edges.T @ chosen - loops, structure.edges

    def together(self, part: sp.csr_matrix, rows: Array, degrees: Array, nodes: int) -> Array:
        """Return the chance of the edge, plus the chance of the edge in the other direction."""
        part.sort_indices()  # the sum below is sorted
        back = (part + part.multiply(part.T)).data - 1
        chosen = _chance(degrees, nodes)
        return chosen[rows] + back * chosen[part.indices]


def _chance(degrees: Array, nodes: int) -> Array:
    """Return the chance 1 / (N deg) of each edge into some nodes: [n] float64.

    Their ``degrees`` are int64.
    """
    return 1 / (nodes * np.maximum(degrees, 1))


@dataclass(frozen=True)
class SaintWalkSampling(SaintSampling):
    """GraphSAINT's random-walk sampler. Its probabilities have no closed form.

    Before training they are counted over some walks from every node: weights are exact up to that
    noise. See `SaintBatches`.

    Args:
        batch_size: walks of a batch.
        walk_length: steps of a walk.
        sample_coverage: walks from every node that are counted before training.
    """

    name = "saint-rw"

    batch_size: AtLeastOne = 2000
    walk_length: AtLeastOne = 2
    sample_coverage: AtLeastOne = 20

    @property
    def length(self) -> int:
        return self.walk_length

    def probabilities(self, structure: Structure, seed: int) -> tuple[Array, sp.csr_matrix]:
        """Return the counted shares; those of edges are the entries."""
        edges = structure.edges
        rng = generator(seed, "counted walks")
        touches, together = _count_walks(edges, self.walk_length, self.sample_coverage, rng)
        return touches, sp.csr_matrix((together, edges.indices, edges.indptr), shape=edges.shape)

    def together(self, part: sp.csr_matrix, rows: Array, degrees: Array, nodes: int) -> Array:
        return part.data.astype(np.float64)


def _count_walks(
    edges: sp.csr_matrix, length: int, coverage: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the shares of walks that touch each node and both ends of each edge.

    They are [N] float64 and [E] float32.
    """
    nodes = edges.shape[0]
    visits = np.zeros(nodes, np.int64)
    together = np.zeros(edges.nnz, np.float32)
    # At every edge the number of its entry, from 1: where there is no edge, it is 0.
    numbers = sp.csr_matrix(
        (np.arange(1, edges.nnz + 1), edges.indices, edges.indptr), shape=edges.shape
    )
    roots = np.tile(np.arange(nodes), coverage)
    for start in range(0, len(roots), _CHUNK):
        walks = _walks(edges, roots[start : start + _CHUNK], length, rng)
        # Whether a walk is where it has not been before: a node counts once for every walk.
        is_first_visit: list[Array] = []
        for t, walk in enumerate(walks):
            is_first_visit.append(np.ones(len(walk), bool))
            for earlier in walks[:t]:
                is_first_visit[t] &= walk != earlier
            visits += np.bincount(walk[is_first_visit[t]], minlength=nodes)
            for s in range(t):
                counts = is_first_visit[s] & is_first_visit[t]
                if not counts.any():
                    continue
                one = walks[s][counts]
                other = walk[counts]
                for target, source in ((one, other), (other, one)):
                    entries = np.asarray(numbers[target, source]).ravel()
                    np.add.at(together, entries[entries > 0] - 1, 1)
    return visits / len(roots), together / len(roots)
