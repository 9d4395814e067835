"""How large the files of a folder of clusters are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gistgnn.graphs.on_disk.clustered import ClusteredGraph
from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.graphs.on_disk.products import PRODUCTS
from gistgnn.graphs.on_disk.reading import ArrayFile

_LOOKED_AT = 50  # clusters whose edges are read
_PIECE = 2**20  # nodes whose degrees are in memory at once


@dataclass(frozen=True)
class StoredSizes:
    """How large the files of a folder of clusters are, in bytes.

    Attributes:
        folder: where they lie.
        clusters: c, a number.
        inside: the share of the edges that lie inside clusters.
        degree: the most edges into a node.
        x: of the features.
        edges: of the edges' sources.
        edge_data: of the edges' weights, features and types.
        products: the operators of which the folder has the product with x.
    """

    folder: str
    clusters: int
    inside: float
    degree: int
    x: int
    edges: int
    edge_data: int = 0
    products: tuple[str, ...] = ()

    @classmethod
    def of(cls, graph: ClusteredGraph) -> StoredSizes:
        """Return the sizes of a graph's files."""
        assert isinstance(graph.x, StoredFeatures)
        files, rowptr = graph.files, graph.edges.rowptr
        pieces = (rowptr[first : first + _PIECE + 1].diff() for first in range(0, graph.num_nodes, _PIECE))
        return cls(
            str(files.folder),
            len(files.cluster_ptr) - 1,
            _inside(graph),
            max(int(degrees.max()) for degrees in pieces),
            _bytes(graph.x.reader.file),
            _bytes(files.col),
            sum(tensor.nbytes for tensor in graph.edge_data.values()),
            _operators(files.folder),
        )


def _operators(folder: Path) -> tuple[str, ...]:
    """Return the operators of which a folder has a product with its features, however these are scaled."""
    return tuple(sorted({path.stem.rpartition("-")[0] for path in (folder / PRODUCTS).glob("[a-z]*-*.json")}))


def _inside(graph: ClusteredGraph) -> float:
    """Return the share of the edges into some clusters, evenly spaced, that begin in the same cluster."""
    ptr, count = graph.files.cluster_ptr, len(graph.files.cluster_ptr) - 1
    inside = edges = 0
    for cluster in np.unique(np.linspace(0, count - 1, _LOOKED_AT).round().astype(int)):
        start, stop = int(ptr[cluster]), int(ptr[cluster + 1])
        source = graph.files.col.rows([(int(graph.edges.rowptr[start]), int(graph.edges.rowptr[stop]))])
        inside, edges = inside + int(((source >= start) & (source < stop)).sum()), edges + len(source)
    return inside / max(edges, 1)


def _bytes(file: ArrayFile) -> int:
    return math.prod(file.shape) * file.dtype.itemsize
