"""GraphSAINT by random edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gistgnn.sampling.batch import Share
from gistgnn.sampling.saint.batches import Draw, SaintSampling
from gistgnn.sampling.sampler import Array
from gistgnn.sampling.structure import Structure


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
        roots = rng.integers(self.edges.shape[0], size=count)
        return np.concatenate([roots, step(self.edges, roots, rng)])

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array:
        """Return the chance of the edge, plus the chance of the edge in the other direction."""
        part.sort_indices()  # the sum below is sorted
        back = (part + part.multiply(part.T)).data - 1
        chosen = self._chosen[nodes]
        return chosen[rows] + back * chosen[part.indices]


def step(edges: sp.csr_matrix, nodes: Array, rng: np.random.Generator) -> Array:
    """Return a random in-neighbour of each node, or the node itself where it has none."""
    starts = edges.indptr[nodes]
    degree = edges.indptr[nodes + 1] - starts
    entries = starts + (rng.random(len(nodes)) * degree).astype(starts.dtype)
    return np.where(degree > 0, edges.indices[np.minimum(entries, len(edges.indices) - 1)], nodes)


@dataclass(frozen=True)
class SaintEdgeSampling(SaintSampling):
    """GraphSAINT's edge sampler; see `EdgeDraw` and `SaintBatches`.

    Args:
        batch_size: edges drawn for a batch; their ends are its nodes.
        batches: see `Sampling`.
    """

    name = "saint-edge"

    batch_size: int = 4000

    def draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """See `SaintSampling.draw`."""
        return EdgeDraw(structure)

    @property
    def touched(self) -> int:
        """See `SaintSampling.touched`."""
        return 2 * self.batch_size
