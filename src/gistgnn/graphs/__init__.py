"""Graphs for node classification: the class `Graph`, files, data sets by name, and clusters."""

from gistgnn.graphs.csr import CSR
from gistgnn.graphs.files import load_file, load_nodes, save_file
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.hetero import from_hetero
from gistgnn.graphs.named import DATASETS, DatasetInfo, GraphSizes, find, is_file, load
from gistgnn.graphs.standardise import Standardisation

__all__ = [
    "CSR",
    "DATASETS",
    "DatasetInfo",
    "Graph",
    "GraphSizes",
    "Standardisation",
    "find",
    "from_hetero",
    "is_file",
    "load",
    "load_file",
    "load_nodes",
    "save_file",
]
