"""Clusters of a graph whose edges are read in blocks: memory for the nodes, and a bound for the edges.

After Akhremtsev, Sanders and Schulz, (Semi-)External Algorithms for Graph Partitioning and Clustering (ALENEX 2015):

1. Label propagation makes many small clusters, in a few passes over the edges.
2. One more pass counts the edges between these. METIS cuts their graph, which fits in memory.
3. Label propagation moves single nodes between METIS's clusters, and makes room where a cluster has too many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gistgnn.graphs import metis
from gistgnn.graphs.streaming.contraction import Contraction
from gistgnn.graphs.streaming.propagation import Labels, packed
from gistgnn.graphs.streaming.rows import RowReader, Rows
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

log = logging.getLogger(__name__)


def stream_bytes(nodes: int, edges: int) -> int:
    """Estimate the memory that `partition` takes beside what this process takes already, with METIS's process.

    Args:
        nodes: N.
        edges: E, directed.
    """
    pairs = min(edges // 2, PAIRS)
    return metis.metis_bytes(nodes // _FEWER, 2 * pairs) + _PAIR * pairs + _NODE * nodes + _BLOCK_BYTES


class Keeper(Protocol):
    """Where the clusters are kept after every stage, so that a killed process goes on."""

    def load(self) -> tuple[int, Part] | None:
        """Return the number of finished stages, and the clusters after them."""

    def save(self, stages: int, part: Part) -> None:
        """Keep the clusters after so many stages."""


class _Nothing:
    def load(self) -> tuple[int, Part] | None:
        return None

    def save(self, stages: int, part: Part) -> None:
        pass


def partition(
    reader: RowReader,
    count: int,
    seed: int,
    keeper: Keeper | None = None,
    seen: Callable[[float], None] = lambda share: None,
) -> Part:
    """Assign every node to a cluster: [N] int32, from 0 to count − 1; some may be empty.

    Args:
        reader: the edges into every node. Best in both directions.
        count: c.
        seed: the same seed gives the same clusters.
        keeper: see `Keeper`.
        seen: is called with the share of the work that is done.

    Raises:
        InputError: the edges cannot be read, or METIS failed.
    """
    keeper = keeper or _Nothing()
    stages = _Stages(reader, count, seed, seen)
    done, part = keeper.load() or (0, np.arange(reader.nodes, dtype=np.int32))
    for number in range(done, len(stages)):
        part = stages.run(number, part)
        keeper.save(number + 1, part)
    return part


class _Stages:
    def __init__(self, reader: RowReader, count: int, seed: int, seen: Callable[[float], None]) -> None:
        self._reader, self._count, self._seed, self._seen = reader, count, seed, seen
        nodes = reader.nodes
        self._small = max(nodes // (count * _SMALLER), 2 if nodes >= 4 * count else 1)
        self._most = max(-(-nodes // count), int(LARGEST * nodes / count))
        self._number = 0

    def __len__(self) -> int:
        return _COARSEN + 1 + _REFINE

    def run(self, number: int, part: Part) -> Part:
        """Return the clusters after one more stage."""
        self._number, rng = number, generator(self._seed, "stream clusters", number)
        if number < _COARSEN:
            return self._coarsen(part, rng, last=number == _COARSEN - 1)
        if number == _COARSEN:
            return self._cut(part, rng)
        return self._refine(part, rng, number - _COARSEN - 1)

    def _coarsen(self, part: Part, rng: np.random.Generator, *, last: bool) -> Part:
        if self._small == 1:
            return part
        labels = Labels.counted(part, self._reader.nodes, self._small)
        alone = self._alone() if last else None
        for rows in self._blocks():
            labels.propagate(rows, rng, int(last))
            if alone is not None:
                labels.adopt(rows, alone)
        return packed(part, self._small, self._reader.nodes // _FEWER) if last else part

    def _cut(self, part: Part, rng: np.random.Generator) -> Part:
        sizes = np.bincount(part)
        contraction = Contraction(part, len(sizes), PAIRS, rng)
        for rows in self._blocks():
            contraction.add(rows)
        graph = contraction.graph()
        log.debug(f"{len(sizes):,} small clusters, {graph.nnz // 2:,} pairs with {contraction.share:.0%} of the edges")
        random_seed = int(rng.integers(2**31))
        cut = metis.partition(graph.indptr, graph.indices, self._count, random_seed, sizes, graph.data)
        return cut.astype(np.int32)[part]

    def _refine(self, part: Part, rng: np.random.Generator, number: int) -> Part:
        labels = Labels.counted(part, self._count, self._most)
        for rows in self._blocks():
            labels.propagate(rows, rng, 1, _LOSSES[number])
        if number == _REFINE - 1:
            labels.spread()
        return part

    def _alone(self) -> npt.NDArray[np.bool_]:
        """Return which nodes have no edge into them: [N]."""
        alone = np.empty(self._reader.nodes, bool)
        for first, ptr in self._reader.pointers():
            alone[first : first + len(ptr) - 1] = ptr[1:] == ptr[:-1]
        return alone

    def _blocks(self) -> Iterator[Rows]:
        reader = self._reader
        edges = min(max(reader.edges // _BLOCKS, _EDGES[0]), _EDGES[1])
        for rows in reader.rows(edges, max(reader.nodes // _BLOCKS, 16), _LONGEST):
            yield rows
            self._seen((self._number + rows.nodes.stop / reader.nodes) / len(self))
