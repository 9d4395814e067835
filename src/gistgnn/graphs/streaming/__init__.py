"""Clusters of a graph whose edges are mapped: memory for the nodes, and a bound for the edges."""

from gistgnn.graphs.streaming.stages import partition, stream_bytes

__all__ = ["partition", "stream_bytes"]
