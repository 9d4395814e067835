"""GCN, GraphSAGE and GAT with one width per layer, and the sparse product they share.

Public names are imported when they are first used, so that listing `MODELS` does not import torch.
"""

from typing import TYPE_CHECKING

from gistgnn.nn.registry import MODELS
from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.nn.adjacency import Adjacency
    from gistgnn.nn.gat import GAT
    from gistgnn.nn.gcn import GCN
    from gistgnn.nn.gnn import GNN, Layer
    from gistgnn.nn.sage import GraphSAGE
    from gistgnn.nn.sparse import SparseMatrix

__all__ = ["GAT", "GCN", "GNN", "MODELS", "Adjacency", "GraphSAGE", "Layer", "SparseMatrix"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Adjacency": "adjacency",
        "GAT": "gat",
        "GCN": "gcn",
        "GNN": "gnn",
        "GraphSAGE": "sage",
        "Layer": "gnn",
        "SparseMatrix": "sparse",
    },
)
