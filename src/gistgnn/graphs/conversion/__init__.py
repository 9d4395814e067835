"""Graph folders, made from sources of any size: `convert`, `partition_folder`."""

from gistgnn.graphs.conversion.converting import convert
from gistgnn.graphs.conversion.partitioning import Partitioned, partition_folder

__all__ = ["Partitioned", "convert", "partition_folder"]
