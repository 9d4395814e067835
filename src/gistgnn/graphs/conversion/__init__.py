"""Conversion of graphs of any size to folders, in passes that keep to a given amount of memory."""

from gistgnn.graphs.conversion.passes import Converted, convert

__all__ = ["Converted", "convert"]
