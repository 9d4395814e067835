"""Clusters of a graph whose edges are read in blocks: memory for the nodes, and a bound for the edges."""

from gistgnn.graphs.streaming.rows import RowReader, Rows, RowsInMemory, RowsOnDisk
from gistgnn.graphs.streaming.stages import Keeper, Part, partition, stream_bytes

__all__ = [
    "Keeper",
    "Part",
    "RowReader",
    "Rows",
    "RowsInMemory",
    "RowsOnDisk",
    "partition",
    "stream_bytes",
]
