"""A synthetic graph as a source that is drawn block by block."""

from __future__ import annotations

from collections.abc import Iterator

from gistgnn.graphs.conversion.from_graph import edge_block
from gistgnn.graphs.conversion.source import EdgeBlock, NodeBlock, Source
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.synthetic_blocks import ROWS, Blocks, edge_chunks


class BlocksSource(Source):
    """A graph of `gistgnn.graphs.synthetic_blocks`.

    Args:
        info: its name and sizes.
    """

    def __init__(self, info: DatasetInfo) -> None:
        self._blocks = Blocks(info)
        self.name, self.features, self.classes = info.name, info.features, info.classes
        self.nodes, self.edges = info.nodes, info.edges

    @property
    def key(self) -> str:
        """The recipe and the sizes."""
        return self._blocks.key

    def node_blocks(self, rows: int) -> Iterator[NodeBlock]:
        """Yield all nodes."""
        for number in range(self._blocks.node_blocks):
            x, y, split = self._blocks.nodes(number)
            for start in range(0, len(x), rows):
                part = slice(start, start + rows)
                yield NodeBlock.plain(number * ROWS + start, x[part], y[part], split[part])

    def edge_blocks(self, rows: int) -> Iterator[EdgeBlock]:
        """Yield all edges, in both directions."""
        start = 0
        for one, other in edge_chunks(self._blocks, rows):
            for ends in ((one, other), (other, one)):
                yield edge_block(start, *ends)
                start += len(one)
