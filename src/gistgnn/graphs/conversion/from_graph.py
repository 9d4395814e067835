"""A graph in memory as a source: named data sets, `.pt` files, and graphs with edge data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.conversion.nodes import row_blocks
from gistgnn.graphs.conversion.source import EdgeBlock, NodeBlock, Source
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.on_disk.opening import SPLITS
from gistgnn.utils.checksums import checksum


class GraphSource(Source):
    """A graph in memory.

    Args:
        graph: it is checked already.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph.to("cpu")
        self.name, self.features, self.classes = graph.name, graph.num_features, graph.num_classes
        self.nodes, self.edges, self.regression = graph.num_nodes, graph.num_edges, graph.regression

    @property
    def key(self) -> str:
        """A checksum of all tensors."""
        return f"{checksum(self.graph.x, self.graph.checksum()):08x} {self.classes}"

    def node_blocks(self, rows: int) -> Iterator[NodeBlock]:
        """Yield all nodes."""
        graph, split = self.graph, split_of(self.graph)
        for part in row_blocks(graph.num_nodes, rows):
            yield NodeBlock.plain(part.start, graph.x[part].numpy(), graph.y[part].numpy(), split[part])

    def edge_blocks(self, rows: int) -> Iterator[EdgeBlock]:
        """Yield all edges."""
        sources, targets = self.graph.edge_index.numpy()
        for part in row_blocks(self.graph.num_edges, rows):
            yield edge_block(part.start, sources[part], targets[part])


def split_of(graph: Graph) -> npt.NDArray[np.uint8]:
    """Return the number of every node's split: [N]."""
    split = np.zeros(graph.num_nodes, np.uint8)
    for name, number in SPLITS.items():
        split[getattr(graph, name).numpy()] = number
    return split


def edge_block(start: int, source: npt.NDArray[np.integer], target: npt.NDArray[np.integer]) -> EdgeBlock:
    """Return edges whose ends messages call as those of an ``edge_index``, from edge ``start`` on."""
    return EdgeBlock(source, target, lambda row, column: f"edge_index[{column}, {start + row}]")
