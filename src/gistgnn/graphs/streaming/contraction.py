"""The graph of clusters: one node for each, with the number of edges between every two of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gistgnn.graphs.streaming.rows import Rows

Ints = npt.NDArray[np.int64]


@dataclass
class Contraction:
    """Counts the edges between clusters, in a bounded amount of memory.

    If there are too many pairs of clusters, every edge is kept with probability 1/2, those that are counted already and
    those to come; and again. So pairs with many edges stay, in proportion.

    Args:
        of: [N] the cluster of every node, each of them with at least one node.
        clusters: how many there are.
        most: pairs with a count.
        rng: chooses the edges.

    Attributes:
        share: probability with which an edge was counted.
    """

    of: npt.NDArray[np.int32]
    clusters: int
    most: int
    rng: np.random.Generator
    share: float = 1.0

    def __post_init__(self) -> None:
        self._bits = max((self.clusters - 1).bit_length(), 1)
        self._counted = np.empty(0, np.int64)  # a pair of clusters above its count, ascending
        self._new: list[Ints] = []
        self._held = 0

    def add(self, rows: Rows) -> None:
        """Count the edges of a block."""
        one, other = self.of[rows.nodes].repeat(np.diff(rows.rowptr)), self.of[rows.source]
        apart = one != other
        if self.share < 1:
            apart &= self.rng.random(len(apart), np.float32) < self.share
        one, other = one[apart].astype(np.int64), other[apart].astype(np.int64)
        keys = (np.minimum(one, other) << self._bits) | np.maximum(one, other)
        self._new.append(_summed((keys << self._below) | 1, self._below))
        self._held += len(self._new[-1])
        if self._held > max(self.most // 2, 1):
            self._merge()

    def graph(self) -> sp.csr_matrix:
        """Return the counts: [clusters, clusters] int32, symmetric."""
        self._merge()
        count = (self._counted & ((1 << self._below) - 1)).clip(max=2**31 - 1).astype(np.int32)
        keys = self._counted >> self._below
        self._counted = np.empty(0, np.int64)
        one, other = (keys >> self._bits).astype(np.int32), (keys & ((1 << self._bits) - 1)).astype(np.int32)
        half = sp.coo_matrix((count, (one, other)), (self.clusters, self.clusters)).tocsr()
        return half + half.T.tocsr()

    @property
    def _below(self) -> int:
        """Bits of a count; a larger one is cut off."""
        return 63 - 2 * self._bits

    def _merge(self) -> None:
        self._counted = _summed(np.concatenate([self._counted, *self._new]), self._below)
        self._new, self._held = [], 0
        while len(self._counted) > self.most:
            count = self._counted & ((1 << self._below) - 1)
            count = self.rng.binomial(count, 0.5)
            self._counted = ((self._counted >> self._below << self._below) | count)[count > 0]
            self.share /= 2


def _summed(pairs: Ints, below: int) -> Ints:
    """Sort pairs with counts in place, and return each once, with the sum of its counts."""
    if not len(pairs):
        return pairs
    pairs.sort()
    keys = pairs >> below
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    top = (1 << below) - 1
    count = np.add.reduceat(pairs & top, starts)
    return (keys[starts] << below) | np.minimum(count, top)
