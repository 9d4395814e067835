"""Clusters of a graph whose edges are read in blocks: memory for the nodes, and a bound for the edges.

After Akhremtsev, Sanders and Schulz, (Semi-)External Algorithms for Graph Partitioning and Clustering (ALENEX 2015):

1. Label propagation makes many small clusters, in a few passes over the edges.
2. One more pass counts the edges between these. METIS cuts their graph, which fits in memory.
3. Label propagation moves single nodes between METIS's clusters, and makes room where a cluster has too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gistgnn.graphs import metis
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.streaming.propagation import Labels, Rows, packed, row_blocks
from gistgnn.utils.random_streams import generator

Part = npt.NDArray[np.int32]

LARGEST = 1.03
"""Nodes of the largest cluster, of the mean; rounded down, but not below the mean."""

PAIRS = 2**21
"""Pairs of small clusters whose edges are counted. If there are more, edges are drawn at random."""

_SMALLER = 6  # small clusters that make a cluster, at least
_FEWER = 8  # nodes of the graph for each small cluster, about, where clusters have many nodes
_COARSEN, _REFINE = 5, 6  # passes
_LOSSES = (0, 1, 2, 8, 2**40, 2**40)  # edges that a node may lose where its cluster has too many, by pass
_EDGES = (2**12, 2**19)  # of a block
_BLOCKS = 64  # at least
_LONGEST = 2**20  # edges into a node that are looked at; hubs may have more
_NODE, _PAIR, _BLOCK_BYTES = 24, 90, 2**27  # bytes of this process, and of METIS's for weights


def stream_bytes(nodes: int, edges: int) -> int:
    """Estimate the memory that `partition` takes beside what this process takes already, with METIS's process.

    ``nodes`` is N, ``edges`` is E, directed.
    """
    pairs = min(edges // 2, PAIRS)
    return metis.metis_bytes(nodes // _FEWER, 2 * pairs) + _PAIR * pairs + _NODE * nodes + _BLOCK_BYTES


def partition(edges: CSR, count: int, seed: int, seen: Callable[[float], None] = lambda share: None) -> Part:
    """Assign every node to a cluster: [N] int32, from 0 to count − 1; some may be empty.

    Args:
        edges: the edges into every node, in memory or mapped. Best in both directions.
        count: c.
        seed: the same seed gives the same clusters.
        seen: called with the share of the work that is done.

    Raises:
        InputError: METIS failed.
    """
    nodes, part = edges.num_nodes, np.arange(edges.num_nodes, dtype=np.int32)
    small = max(nodes // (count * _SMALLER), 2 if nodes >= 4 * count else 1)  # nodes of a small cluster, at most
    most = max(-(-nodes // count), int(LARGEST * nodes / count))
    streams = [generator(seed, "stream clusters", number) for number in range(_COARSEN + 1 + _REFINE)]

    def blocks(number: int) -> Iterator[Rows]:
        """Yield the edges for a pass."""
        block = min(max(edges.num_edges // _BLOCKS, _EDGES[0]), _EDGES[1])
        for rows in row_blocks(edges, block, max(nodes // _BLOCKS, 16), _LONGEST):
            yield rows
            seen((number + rows.nodes.stop / nodes) / len(streams))

    if small > 1:  # small clusters
        alone = (edges.rowptr.diff() == 0).numpy()
        for number in range(_COARSEN):
            labels, last = Labels.counted(part, nodes, small), number == _COARSEN - 1
            for rows in blocks(number):
                labels.propagate(rows, streams[number], int(last))
                if last:
                    labels.adopt(rows, alone)
        part = packed(part, small, nodes // _FEWER)
    sizes, rng = np.bincount(part), streams[_COARSEN]
    graph = contracted(blocks(_COARSEN), part, len(sizes), PAIRS, rng)
    part = metis.partition(graph, count, int(rng.integers(2**31)), sizes).astype(np.int32)[part]
    for number, loss in enumerate(_LOSSES, _COARSEN + 1):
        labels = Labels.counted(part, count, most)
        for rows in blocks(number):
            labels.propagate(rows, streams[number], 1, loss)
    labels.spread()
    return part


def contracted(blocks: Iterator[Rows], part: Part, clusters: int, most: int, rng: np.random.Generator) -> sp.csr_matrix:
    """Return how many edges go between clusters: [clusters, clusters] int32, symmetric.

    If more than ``most`` pairs have edges, every edge is kept with probability 1/2, those that are counted already and
    those to come; and again. So pairs with many edges stay, in proportion. ``blocks`` has all edges, ``part``: [N] the
    cluster of every node; ``rng`` chooses the edges.
    """
    counts, waiting, share = sp.csr_matrix((clusters, clusters), dtype=np.int64), [], 1.0
    for rows in blocks:
        one, other = part[rows.nodes].repeat(np.diff(rows.rowptr)), part[rows.source]
        kept = one != other
        if share < 1:
            kept &= rng.random(len(kept), np.float32) < share
        waiting.append(np.stack([np.minimum(one, other)[kept], np.maximum(one, other)[kept]]))
        if sum(pairs.shape[1] for pairs in waiting) > 2 * most:
            counts, waiting = counts + _counted(waiting, clusters), []
            while counts.nnz > most:
                counts.data = rng.binomial(counts.data, 0.5)
                counts.eliminate_zeros()
                share /= 2
    counts += _counted(waiting, clusters)
    counts.data = counts.data.clip(max=2**31 - 1).astype(np.int32)
    return counts + counts.T.tocsr()


def _counted(pairs: list[npt.NDArray[np.int32]], clusters: int) -> sp.csr_matrix:
    ends = np.concatenate([*pairs, np.empty((2, 0), np.int32)], axis=1)
    return sp.coo_matrix((np.ones(ends.shape[1], np.int64), (ends[0], ends[1])), (clusters, clusters)).tocsr()
