"""GraphSAINT by random nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gistgnn.sampling.batch import Share
from gistgnn.sampling.saint.batches import Draw, SaintSampling
from gistgnn.sampling.sampler import Array
from gistgnn.sampling.structure import Structure


class NodeDraw(Draw):
    """Draws one node u with probability P(u) ∝ Σ_v Ã_vu², where Ã = D̃^-1 (A + I) (GraphSAINT, section 3.3).

    The paper uses D^-1 A, which never draws a node without outgoing edges.
    """

    def __init__(self, structure: Structure) -> None:
        inverse = structure.inverse.astype(np.float64) ** 2
        squares = structure.edges.T @ inverse + structure.missing_loops * inverse
        self.touches, self.edges = squares / squares.sum(), structure.edges
        self._cumulated = self.touches.cumsum()

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes of ``count`` draws."""
        return np.searchsorted(self._cumulated, rng.random(count) * self._cumulated[-1], side="right")

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> float:
        """Return 0: no draw touches two nodes."""
        return 0.0


@dataclass(frozen=True)
class SaintNodeSampling(SaintSampling):
    """GraphSAINT's node sampler; see `NodeDraw` and `SaintBatches`.

    Args:
        batch_size: draws for a batch; some nodes are drawn more than once.
        batches: see `Sampling`.
    """

    name = "saint-node"

    def draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """See `SaintSampling.draw`."""
        return NodeDraw(structure)
