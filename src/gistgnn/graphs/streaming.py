"""Clusters of a graph whose edges are read in blocks.

It needs memory for the nodes, and no more than a bound for the edges. After Akhremtsev, Sanders and
Schulz, (Semi-)External Algorithms for Graph Partitioning and Clustering (ALENEX 2015):

1. Label propagation makes many small clusters, in a few passes over the edges.
2. One more pass counts the edges between these. METIS cuts their graph, which fits in memory.
3. Label propagation moves single nodes between METIS's clusters, and makes room where a cluster
   has too many.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gistgnn.graphs import metis
from gistgnn.graphs.csr import CSR, row_chunks
from gistgnn.utils.random_streams import generator

Part = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

LARGEST = 1.03
"""The largest cluster has at most so many times the mean number of nodes.

It is rounded down, but not below the mean.
"""

PAIRS = 2**21
"""Pairs of small clusters whose edges are counted. If there are more, edges are drawn at random."""

_SMALLER = 6  # a cluster is made of so many small clusters at least
_FEWER = 8  # where clusters have many nodes, a small cluster has about so many nodes
_COARSEN = 5  # passes that make small clusters
_REFINE = 6  # passes that move single nodes between METIS's clusters
# How many edges a node may lose where its cluster has too many nodes, by pass.
_LOSSES = (0, 1, 2, 8, 2**40, 2**40)
_FEWEST_EDGES = 2**12  # of a block
_MOST_EDGES = 2**19
_BLOCKS = 64  # of a graph, at least
# Bytes of this process, and of METIS's for weights, for each node, pair and block.
_NODE = 24
_PAIR = 90
_BLOCK_BYTES = 2**27
# A score has these bits below the number of edges. A block has fewer than 2^22 edges, but that of a
# hub with more, which may go to a cluster that is not the best one.
_PLACE = 22
_RANDOM = 18
# So many nodes' places in `col` are looked at at once. Another number would change the clusters.
_POINTERS = 2**16


def stream_bytes(nodes: int, edges: int) -> int:
    """Estimate the memory that `stream_clusters` takes beside what this process has.

    There are N nodes and E directed edges.
    """
    pairs = min(edges // 2, PAIRS)
    return (
        metis.metis_bytes(nodes // _FEWER, 2 * pairs) + _PAIR * pairs + _NODE * nodes + _BLOCK_BYTES
    )


def stream_clusters(edges: CSR, count: int, seed: int) -> Part:
    """Assign every node to a cluster: [N] int32; some may be empty."""
    nodes = edges.num_nodes
    part = np.arange(nodes, dtype=np.int32)  # at first every node is a cluster
    # The most nodes of a small cluster.
    small = max(nodes // (count * _SMALLER), 2 if nodes >= 4 * count else 1)
    most = max(-(-nodes // count), int(LARGEST * nodes / count))
    streams = [
        generator(seed, "stream clusters", number) for number in range(_COARSEN + 1 + _REFINE)
    ]

    def blocks() -> Iterator[Block]:
        most_edges = min(max(edges.num_edges // _BLOCKS, _FEWEST_EDGES), _MOST_EDGES)
        return blocks_of(edges, most_edges, max(nodes // _BLOCKS, 16))

    if small > 1:
        alone = (edges.rowptr.diff() == 0).numpy()
        for number in range(_COARSEN):
            labels = Labels.counted(part, nodes, small)
            last = number == _COARSEN - 1
            for block in blocks():
                labels.propagate(block, streams[number], int(last))
                if last:
                    labels.adopt(block, alone)
        part = packed(part, small, nodes // _FEWER)
    sizes = np.bincount(part)
    rng = streams[_COARSEN]
    graph = contracted(blocks(), part, len(sizes), PAIRS, rng)
    cluster_of_small = metis.metis_clusters(graph, count, int(rng.integers(2**31)), sizes)
    part = cluster_of_small.astype(np.int32)[part]
    for number, loss in enumerate(_LOSSES, _COARSEN + 1):
        labels = Labels.counted(part, count, most)
        for block in blocks():
            labels.propagate(block, streams[number], 1, loss)
    labels.spread()
    return part


def contracted(
    blocks: "Iterator[Block]", part: Part, clusters: int, most: int, rng: np.random.Generator
) -> sp.csr_matrix:
    """Return how many edges go between clusters, [clusters, clusters] int32, symmetric.

    `part` has the cluster of every node: [N].
    """
    # If more than `most` pairs have edges, every edge, counted or to come, is kept with probability
    # 1/2; and again. So pairs with many edges stay, in proportion.
    counts = sp.csr_matrix((clusters, clusters), dtype=np.int64)
    waiting = []
    share = 1.0
    for block in blocks:
        one = part[block.target]
        other = part[block.source]
        is_chosen = one != other
        if share < 1:
            is_chosen &= rng.random(len(is_chosen), np.float32) < share
        waiting.append(
            np.stack([np.minimum(one, other)[is_chosen], np.maximum(one, other)[is_chosen]])
        )
        if sum(pairs.shape[1] for pairs in waiting) > 2 * most:
            counts = counts + _counted(waiting, clusters)
            waiting = []
            while counts.nnz > most:
                counts.data = rng.binomial(counts.data, 0.5)
                counts.eliminate_zeros()
                share /= 2
    counts += _counted(waiting, clusters)
    counts.data = counts.data.clip(max=2**31 - 1).astype(np.int32)
    return counts + counts.T.tocsr()


def _counted(pairs: list[npt.NDArray[np.int32]], clusters: int) -> sp.csr_matrix:
    ends = np.concatenate([*pairs, np.empty((2, 0), np.int32)], axis=1)
    return sp.coo_matrix(
        (np.ones(ends.shape[1], np.int64), (ends[0], ends[1])), (clusters, clusters)
    ).tocsr()


class Block(NamedTuple):
    """The edges into consecutive nodes."""

    nodes: slice
    source: npt.NDArray[Any]  # [edges]
    target: Ints  # [edges], ascending


def blocks_of(edges: CSR, most_edges: int, most_nodes: int) -> Iterator[Block]:
    """Yield all edges in blocks of at most ``most_edges`` edges, or of one node."""
    for begin in range(0, edges.num_nodes, _POINTERS):
        for rows in row_chunks(edges.rowptr[begin : begin + _POINTERS + 1], most_nodes, most_edges):
            nodes = slice(begin + rows.start, begin + rows.stop)
            part = edges.rows(nodes)[0]
            target = np.arange(nodes.start, nodes.stop).repeat(part.rowptr.diff().numpy())
            yield Block(nodes, part.col.numpy(), target)


@dataclass
class Labels:
    """The cluster of every node, and the clusters' sizes.

    In label propagation every node moves to the cluster that most of its neighbours are in, among
    the clusters with room. The nodes of a block move at once; the next block sees where they went.
    """

    of: Part  # [N], the cluster of every node
    sizes: Ints  # [clusters]
    # How many nodes a cluster may have. Some may have more at first, but nodes never move to those.
    most: int

    @classmethod
    def counted(cls, of: Part, clusters: int, most: int) -> "Labels":
        return cls(of, np.bincount(of, minlength=clusters), most)

    def propagate(self, block: Block, rng: np.random.Generator, least: int, loss: int = 0) -> None:
        """Move nodes to where most neighbours are, if they gain ``least`` edges.

        Nodes of clusters that are too full may lose ``loss`` edges.
        """
        node, label, count = self._counted(block)
        if not len(node):
            return
        current = self.of[block.nodes].astype(np.int64)
        at_home = label == current[node]
        edges_at_home = np.zeros(len(current), np.int64)
        edges_at_home[node[at_home]] = count[at_home]
        score = (count << (_PLACE + _RANDOM)) | (rng.integers(0, 1 << _RANDOM, len(node)) << _PLACE)
        score |= np.arange(len(node))
        score[at_home | (self.sizes[label] >= self.most)] = -1
        best = np.maximum.reduceat(score, np.flatnonzero(np.diff(node, prepend=-1)))
        best = best[best >= 0] & ((1 << _PLACE) - 1)
        mover = node[best]
        label = label[best]
        gain = count[best] - edges_at_home[mover]
        home = current[mover]
        moves = gain >= least
        if loss:
            moves |= self._leaving(home, gain, least, loss)
        self.move(block.nodes.start + mover[moves], label[moves], gain[moves])

    def _counted(self, block: Block) -> tuple[Ints, Ints, Ints]:
        """Count the edges from every node of a block to every cluster of its neighbours.

        Returns the nodes, counted from the first of the block, the clusters and the numbers of
        edges.
        """
        bits = len(self.sizes).bit_length()
        keys = ((block.target - block.nodes.start) << bits) | self.of[block.source]
        keys = keys[block.source != block.target]
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

    def move(self, nodes: Ints, labels: Ints, gain: Ints) -> None:
        """Move nodes as long as there is room, those that gain most first."""
        order = np.lexsort((-gain, labels))
        nodes = nodes[order]
        labels = labels[order]
        fits = _ranks(labels) < self.most - self.sizes[labels]
        nodes = nodes[fits]
        labels = labels[fits]
        np.subtract.at(self.sizes, self.of[nodes], 1)
        np.add.at(self.sizes, labels, 1)
        self.of[nodes] = labels

    def adopt(self, block: Block, alone: npt.NDArray[np.bool_]) -> None:
        """Let nodes without an edge into them move to the clusters of their targets.

        ``alone`` is their mask, [N]. Only those that are alone in their clusters move.
        """
        entries = np.flatnonzero(alone[block.source])
        nodes, first = np.unique(block.source[entries], return_index=True)
        labels = self.of[block.target[entries[first]]].astype(np.int64)
        free = (self.sizes[self.of[nodes]] == 1) & (self.of[nodes] != labels)
        self.move(nodes[free], labels[free], np.zeros(int(free.sum()), np.int64))

    def spread(self) -> None:
        """Move nodes out of clusters that have too many, to those with most room."""
        excess = np.maximum(self.sizes - self.most, 0)
        members = np.flatnonzero(excess[self.of])
        members = members[np.argsort(self.of[members], kind="stable")]
        home = self.of[members]
        nodes = members[_ranks(home) < excess[home]]
        room = np.maximum(self.most - self.sizes, 0)
        order = np.argsort(-room, kind="stable")
        labels = order.repeat(room[order])[: len(nodes)]
        self.move(nodes[: len(labels)], labels, np.zeros(len(labels), np.int64))


def packed(part: Part, most: int, clusters: int) -> Part:
    """Put the smallest clusters together, up to ``most`` nodes, and renumber them.

    It ends when about ``clusters`` are left.
    """
    part = _renumbered(part)
    small = 0
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


def _renumbered(part: Part) -> Part:
    """Return clusters with numbers from 0 on, without gaps."""
    numbers = np.cumsum(np.bincount(part) > 0, dtype=np.int32)
    numbers -= 1
    return numbers[part]


def _ranks(groups: npt.NDArray[np.integer]) -> Ints:
    """Return the place of every entry within its group: 0, 1, ...; equal entries lie together."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - starts.repeat(np.diff(starts, append=len(groups)))
