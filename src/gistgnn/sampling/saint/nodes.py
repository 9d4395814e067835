"""GraphSAINT by random nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gistgnn.sampling.batch import Share
from gistgnn.sampling.drawn import Array
from gistgnn.sampling.saint.batches import Draw, SaintSampling
from gistgnn.sampling.structure import Structure


class NodeDraw(Draw):
    """One node u, with probability P(u) ∝ Σ_v Ã_vu² (GraphSAINT, section 3.3), Ã = D̃^-1 (A + I).

    The paper has D^-1 A, by which a node that sends nothing is never seen.
    """

    def __init__(self, structure: Structure) -> None:
        each = structure.inverse.astype(np.float64) ** 2
        squares = structure.edges.T @ each + structure.missing_loops * each
        self.touches, self.edges = squares / squares.sum(), structure.edges
        self._cumulated = self.touches.cumsum()

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """The nodes of so many draws."""
        return np.searchsorted(self._cumulated, rng.random(count) * self._cumulated[-1], side="right")

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> float:
        """No draw touches two nodes."""
        return 0.0


@dataclass(frozen=True)
class SaintNodeSampling(SaintSampling):
    """GraphSAINT's node sampler; see `NodeDraw` and `SaintBatches`.

    Args:
        batch_size: draws of a batch; some nodes are drawn more than once.
        batches: see `Sampling`.

    Raises:
        InputError: a value out of its range.
    """

    name = "saint-node"

    def draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """See `SaintSampling.draw`."""
        return NodeDraw(structure)
