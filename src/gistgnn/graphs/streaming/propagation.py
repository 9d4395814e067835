"""Label propagation under a bound on the sizes of clusters, block by block.

Every node moves to the cluster that most of its neighbours are in, among the clusters with room. The nodes of a block
move at once; the next block sees where they went.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.csr import CSR, row_chunks

Ints = npt.NDArray[np.int64]

_PLACE, _RANDOM = 22, 18  # bits of a score below the number of edges
PLACES = 2**_PLACE  # edges that a block may have

_POINTERS = 2**16  # nodes whose places in `col` are looked at at once; another number would change the clusters


@dataclass(frozen=True)
class Rows:
    """A block of edges: the edges into consecutive nodes."""

    first: int  # the number of the first node
    rowptr: Ints  # [n + 1], from 0: node ``first + i`` has the edges ``rowptr[i]`` to ``rowptr[i + 1] - 1``
    source: npt.NDArray[Any]  # [edges of these nodes]

    @property
    def nodes(self) -> slice:
        """The numbers of the nodes."""
        return slice(self.first, self.first + len(self.rowptr) - 1)

    def targets(self) -> Ints:
        """Return the target of every edge, counted from ``first``: [edges]."""
        return np.arange(len(self.rowptr) - 1).repeat(np.diff(self.rowptr))


def row_blocks(edges: CSR, most_edges: int, most_nodes: int, longest: int) -> Iterator[Rows]:
    """Yield all edges in blocks of at most so many edges and nodes. A node with more edges has its own block.

    Of a node with more than ``most_edges`` edges, the edges beyond ``longest`` are left out.
    """
    col = edges.col.numpy()
    for begin in range(0, edges.num_nodes, _POINTERS):
        ptr = edges.rowptr[begin : begin + _POINTERS + 1]
        for rows in row_chunks(ptr, most_nodes, most_edges):
            bounds = ptr[rows.start : rows.stop + 1].numpy().astype(np.int64)
            start, bounds = bounds[0], bounds - bounds[0]
            if len(bounds) == 2:
                bounds = np.minimum(bounds, max(longest, most_edges))
            yield Rows(begin + rows.start, bounds, col[start : start + bounds[-1]])


@dataclass
class Labels:
    """The cluster of every node, and how many nodes each cluster has."""

    of: npt.NDArray[np.int32]  # [N]
    sizes: Ints  # [clusters]
    most: int  # nodes that a cluster may have; clusters may have more at first, but nodes never move to those

    @classmethod
    def counted(cls, of: npt.NDArray[np.int32], clusters: int, most: int) -> Labels:
        """Count the nodes of every cluster."""
        return cls(of, np.bincount(of, minlength=clusters), most)

    def propagate(self, rows: Rows, rng: np.random.Generator, least: int, loss: int = 0) -> None:
        """Let the nodes of a block move to where most of their neighbours are; ``rng`` breaks ties.

        A move gains at least ``least`` edges inside clusters; out of a cluster with too many nodes, it may lose
        ``loss`` edges.
        """
        node, label, count = self._counted(rows)
        if not len(node):
            return
        own = self.of[rows.nodes].astype(np.int64)
        at_home = label == own[node]
        kept = np.zeros(len(own), np.int64)
        kept[node[at_home]] = count[at_home]
        score = (count << (_PLACE + _RANDOM)) | (rng.integers(0, 1 << _RANDOM, len(node)) << _PLACE)
        score |= np.arange(len(node))
        score[at_home | (self.sizes[label] >= self.most)] = -1
        best = np.maximum.reduceat(score, np.flatnonzero(np.diff(node, prepend=-1)))
        best = best[best >= 0] & (PLACES - 1)
        mover, label = node[best], label[best]
        gain, home = count[best] - kept[mover], own[mover]
        wanted = gain >= least
        if loss:
            wanted |= self._leaving(home, gain, least, loss)
        self.move(rows.first + mover[wanted], label[wanted], gain[wanted])

    def _counted(self, rows: Rows) -> tuple[Ints, Ints, Ints]:
        """Return, for every node of a block and every cluster of its neighbours, the number of edges."""
        target, bits = rows.targets(), len(self.sizes).bit_length()
        keys = (target << bits) | self.of[rows.source]
        loops = rows.source == target + rows.first
        if loops.any():
            keys = keys[~loops]
        keys.sort()
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        count = np.diff(starts, append=len(keys))
        keys = keys[starts]
        return keys >> bits, keys & ((1 << bits) - 1), count

    def _leaving(self, home: Ints, gain: Ints, least: int, loss: int) -> npt.NDArray[np.bool_]:
        """Choose nodes that leave clusters with too many nodes, those that lose least first."""
        excess = self.sizes - self.most
        chosen = np.flatnonzero((gain < least) & (gain >= -loss) & (excess[home] > 0))
        order = chosen[np.lexsort((-gain[chosen], home[chosen]))]
        leaving = np.zeros(len(home), bool)
        leaving[order[_ranks(home[order]) < excess[home[order]]]] = True
        return leaving

    def move(self, nodes: Ints, labels: Ints, gain: Ints) -> int:
        """Move nodes as long as there is room, those that gain most first. Return how many moved."""
        order = np.lexsort((-gain, labels))
        nodes, labels = nodes[order], labels[order]
        fits = _ranks(labels) < self.most - self.sizes[labels]
        nodes, labels = nodes[fits], labels[fits]
        np.subtract.at(self.sizes, self.of[nodes], 1)
        np.add.at(self.sizes, labels, 1)
        self.of[nodes] = labels
        return len(nodes)

    def adopt(self, rows: Rows, alone: npt.NDArray[np.bool_]) -> None:
        """Let nodes without an edge into them, ``alone``: [N], move from clusters of their own to their targets'."""
        entries = np.flatnonzero(alone[rows.source])
        nodes, first = np.unique(rows.source[entries], return_index=True)
        labels = self.of[rows.nodes].repeat(np.diff(rows.rowptr))[entries[first]].astype(np.int64)
        free = (self.sizes[self.of[nodes]] == 1) & (self.of[nodes] != labels)
        self.move(nodes[free], labels[free], np.zeros(int(free.sum()), np.int64))

    def spread(self) -> int:
        """Move nodes out of clusters that have too many, to those with most room. Return how many moved."""
        excess = np.maximum(self.sizes - self.most, 0)
        if not excess.any():
            return 0
        members = np.flatnonzero(excess[self.of])
        members = members[np.argsort(self.of[members], kind="stable")]
        home = self.of[members]
        nodes = members[_ranks(home) < excess[home]]
        room = np.maximum(self.most - self.sizes, 0)
        order = np.argsort(-room, kind="stable")
        labels = order.repeat(room[order])[: len(nodes)]
        return self.move(nodes[: len(labels)], labels, np.zeros(len(labels), np.int64))


def packed(part: npt.NDArray[np.int32], most: int, clusters: int) -> npt.NDArray[np.int32]:
    """Put the smallest clusters together until there are few enough, and number them from 0 without gaps.

    Clusters that are put together have at most ``most`` nodes. There may be ``clusters`` of them, or about 2 N /
    ``most`` if that is more.
    """
    part, small = _renumbered(part), 0
    sizes = np.bincount(part)
    while len(sizes) > clusters and small < most // 2:
        small = min(max(2 * small, 1), most // 2)
        joined = sizes <= small
        begins = np.cumsum(sizes * joined) - sizes * joined
        bins = begins // (most - small + 1)  # the last cluster of a bin fits in
        bins[~joined] = len(sizes) + np.arange(int((~joined).sum()))
        part = _renumbered(bins.astype(np.int32)[part])
        sizes = np.bincount(part)
    return part


def _renumbered(part: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return clusters with numbers from 0 on, without gaps."""
    numbers = np.cumsum(np.bincount(part) > 0, dtype=np.int32)
    numbers -= 1
    return numbers[part]


def _ranks(groups: npt.NDArray[np.integer]) -> Ints:
    """Return the place of every entry within its group: 0, 1, ...; equal entries lie together."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - starts.repeat(np.diff(starts, append=len(groups)))
