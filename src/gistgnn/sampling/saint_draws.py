"""GraphSAINT's ways to draw nodes at random, and how likely they touch a node or an edge (Zeng et al., 2020)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.sampling.batch import Share, unshared
from gistgnn.sampling.sampler import Array
from gistgnn.sampling.structure import Structure
from gistgnn.utils.random_streams import generator

_CHUNK = 2**20  # walks that are counted at once


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


class NodeDraw(Draw):
    """Draws one node u with probability P(u) ∝ Σ_v Ã_vu², where Ã = D̃^-1 (A + I) (GraphSAINT, section 3.3).

    GraphSAINT uses D^-1 A, which never draws a node without outgoing edges.
    """

    def __init__(self, structure: Structure) -> None:
        looped = structure.counts.numpy() + structure.missing_loops  # in-degrees in A + I; edge weights do not count
        inverse = (1 / looped).astype(np.float64) ** 2
        squares = structure.edges.T @ inverse + structure.missing_loops * inverse
        self.touches, self.edges = squares / squares.sum(), structure.edges
        self._cumulated = self.touches.cumsum()

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes of ``count`` draws."""
        return np.searchsorted(self._cumulated, rng.random(count) * self._cumulated[-1], side="right")

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> float:
        """Return 0: no draw touches two nodes."""
        return 0.0


class EdgeDraw(Draw):
    """Draws both ends of one edge with probability ∝ 1/deg(u) + 1/deg(v) (GraphSAINT, section 3.3).

    That is a random node and one of its in-neighbours at random. A node without in-neighbours comes alone.
    """

    def __init__(self, structure: Structure) -> None:
        self.edges = structure.edges
        degree = np.diff(self.edges.indptr)
        self._chosen = 1 / (len(degree) * np.maximum(degree, 1))  # 1 / (N deg), of each in-edge of a node
        loops = self.edges.diagonal() * self._chosen  # they touch one node, not two
        self.touches = 1 / len(degree) + self.edges.T @ self._chosen - loops

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the ends of ``count`` edges."""
        return np.concatenate(_walks(self.edges, count, 1, rng))

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array:
        """Return the chance of the edge, plus the chance of the edge in the other direction."""
        part.sort_indices()  # the sum below is sorted
        back = (part + part.multiply(part.T)).data - 1
        chosen = self._chosen[nodes]
        return chosen[rows] + back * chosen[part.indices]


class WalkDraw(Draw):
    """Draws the nodes of one random walk from a random node; each step goes to a random in-neighbour.

    The probabilities have no closed form. Before training they are counted over many walks, the same number from every
    node (``coverage``), so that weights are exact up to the noise of these counts.
    """

    def __init__(self, structure: Structure, length: int, coverage: int, seed: int, share: Share = unshared) -> None:
        edges = structure.edges
        counts = share(lambda: _counted(edges, length, coverage, generator(seed, "counted walks")))
        self._length, self._plain, self.touches = length, edges, counts["touches"].numpy()
        self.edges = sp.csr_matrix((counts["together"].numpy(), edges.indices, edges.indptr), shape=edges.shape)

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes of ``count`` walks."""
        return np.concatenate(_walks(self._plain, count, self._length, rng))

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
