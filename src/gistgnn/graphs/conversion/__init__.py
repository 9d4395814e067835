"""Conversion of graphs of any size to folders, and of folders to folders of clusters, in passes that keep to a given
amount of memory.
"""

from gistgnn.graphs.conversion.clustered import Partitioned, partition_folder
from gistgnn.graphs.conversion.passes import Converted, convert

__all__ = ["Converted", "Partitioned", "convert", "partition_folder"]
