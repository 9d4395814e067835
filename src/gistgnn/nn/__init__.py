"""GCN, GraphSAGE and GAT with one width per layer, over one sparse product."""

from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.gat import GAT
from gistgnn.nn.gcn import GCN
from gistgnn.nn.gnn import GNN
from gistgnn.nn.sage import GraphSAGE
from gistgnn.nn.sparse import SparseMatrix

MODELS: dict[str, type[GNN]] = {"gcn": GCN, "graphsage": GraphSAGE, "gat": GAT}
"""The models by their names on the command line."""

__all__ = ["GAT", "GCN", "GNN", "MODELS", "Adjacency", "GraphSAGE", "SparseMatrix"]
