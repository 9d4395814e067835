"""How large the files of a folder of clusters are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from gistgnn.graphs.csr import CSR
from gistgnn.graphs.graph import Graph

_LOOKED_AT = 50  # clusters whose edges are read


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
    def of(cls, graph: Graph) -> StoredSizes:
        """Return the sizes of a graph's files."""
        assert isinstance(graph.edges, CSR)
        assert graph.folder is not None
        assert graph.cluster_ptr is not None
        return cls(
            str(graph.folder),
            len(graph.cluster_ptr) - 1,
            _inside(graph.edges, graph.cluster_ptr),
            graph.edges.most_entries,
            graph.x.nbytes,
            graph.edges.col.nbytes,
            sum(tensor.nbytes for tensor in graph.edge_data.values()),
            _operators(graph.folder),
        )


def _operators(folder: Path) -> tuple[str, ...]:
    """Return the operators of which a folder has a product with its features, however these are scaled."""
    return tuple(sorted({path.stem.split("-")[1] for path in folder.glob("product-*.npy")}))


def _inside(edges: CSR, ptr: Tensor) -> float:
    """Return the share of the edges into some clusters, evenly spaced, that begin in the same cluster."""
    inside = found = 0
    for cluster in np.unique(np.linspace(0, len(ptr) - 2, _LOOKED_AT).round().astype(int)):
        start, stop = int(ptr[cluster]), int(ptr[cluster + 1])
        source = edges.rows(slice(start, stop))[0].col
        inside, found = inside + int(((source >= start) & (source < stop)).sum()), found + len(source)
    return inside / max(found, 1)
