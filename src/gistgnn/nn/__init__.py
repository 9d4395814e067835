"""GCN, GraphSAGE, GAT, GATv2 and GIN with one width per layer, and the sparse product they share.

Public names are imported when they are first used, so that listing `MODELS` does not import torch.
A new model is a file in this folder and a line in `MODELS`.
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import Registry, lazy_attributes

if TYPE_CHECKING:
    from gistgnn.nn.adjacency import Adjacency
    from gistgnn.nn.convolutions import GCN, GIN, GraphSAGE
    from gistgnn.nn.gat import GAT, GATv2
    from gistgnn.nn.gnn import GNN, Layer, members_of
    from gistgnn.nn.pyg_models import to_pyg
    from gistgnn.nn.scaling import ScaledModel
    from gistgnn.nn.sparse import SparseMatrix

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GNN",
    "MODELS",
    "Adjacency",
    "GATv2",
    "GraphSAGE",
    "Layer",
    "SparseMatrix",
]
__all__ += ["ScaledModel", "members_of", "to_pyg"]

MODELS: "Registry[type[GNN]]" = Registry(
    {
        "gcn": "gistgnn.nn.convolutions:GCN",
        "graphsage": "gistgnn.nn.convolutions:GraphSAGE",
        "gat": "gistgnn.nn.gat:GAT",
        "gatv2": "gistgnn.nn.gat:GATv2",
        "gin": "gistgnn.nn.convolutions:GIN",
    }
)
"""The model classes by name. ``MODELS["gcn"]`` imports the class; ``list(MODELS)`` imports
nothing.
"""

WITH_HEADS = ("gat", "gatv2")
"""The names of the models that have attention heads."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "gistgnn.nn.adjacency": ("Adjacency",),
        "gistgnn.nn.convolutions": ("GCN", "GIN", "GraphSAGE"),
        "gistgnn.nn.gat": ("GAT", "GATv2"),
        "gistgnn.nn.gnn": ("GNN", "Layer", "members_of"),
        "gistgnn.nn.pyg_models": ("to_pyg",),
        "gistgnn.nn.scaling": ("ScaledModel",),
        "gistgnn.nn.sparse": ("SparseMatrix",),
    },
)
