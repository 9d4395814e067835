"""The models that have a name on the command line. A new model is a file in this folder and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.nn.gnn import GNN

MODELS: Registry[type[GNN]] = Registry(
    {
        "gcn": "gistgnn.nn.gcn:GCN",
        "graphsage": "gistgnn.nn.sage:GraphSAGE",
        "gat": "gistgnn.nn.gat:GAT",
    }
)
"""The model classes by name. ``MODELS["gcn"]`` imports the class; ``list(MODELS)`` imports nothing."""
