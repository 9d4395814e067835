"""GCN, GraphSAGE, GAT, GATv2 and GIN with one width per layer, and the sparse product they share.

Public names are imported when they are first used, so that listing `MODELS` does not import torch. A new model is a
file in this folder and a line in `MODELS`.
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import Registry, lazy_attributes

if TYPE_CHECKING:
    from gistgnn.nn.adjacency import Adjacency
    from gistgnn.nn.ensemble_model import members_of
    from gistgnn.nn.gat import GAT, GATv2
    from gistgnn.nn.gcn import GCN
    from gistgnn.nn.gin import GIN
    from gistgnn.nn.gnn import GNN, Layer
    from gistgnn.nn.sage import GraphSAGE
    from gistgnn.nn.sparse import SparseMatrix

__all__ = ["GAT", "GCN", "GIN", "GNN", "MODELS", "Adjacency", "GATv2", "GraphSAGE", "Layer", "SparseMatrix"]
__all__ += ["members_of"]

MODELS: "Registry[type[GNN]]" = Registry(
    {
        "gcn": "gistgnn.nn.gcn:GCN",
        "graphsage": "gistgnn.nn.sage:GraphSAGE",
        "gat": "gistgnn.nn.gat:GAT",
        "gatv2": "gistgnn.nn.gat:GATv2",
        "gin": "gistgnn.nn.gin:GIN",
    }
)
"""The model classes by name. ``MODELS["gcn"]`` imports the class; ``list(MODELS)`` imports nothing."""

WITH_HEADS = ("gat", "gatv2")
"""The names of the models that have attention heads."""

_HOMES = {"Adjacency": "adjacency", "GCN": "gcn", "GIN": "gin", "GraphSAGE": "sage", "SparseMatrix": "sparse"}
_HOMES |= {"GAT": "gat", "GATv2": "gat", "GNN": "gnn", "Layer": "gnn", "members_of": "ensemble_model"}
__getattr__ = lazy_attributes(__name__, _HOMES)
