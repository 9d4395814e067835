"""The same model as a PyG user would write and run it."""

import warnings
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from benchmarks.case import DROPOUT, Case
from benchmarks.other_library import OtherLibrary, StackOfLayers
from gistgnn.sampling import Batch

warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")


class PyGModel(StackOfLayers):
    """A stack of PyG's layers, for an edge_index [2, E] or a CSR tensor of (target, source)."""

    def make_layer(self, case: Case, features: int, width: int, *, last: bool) -> nn.Module:
        """Build PyG's layer for the model's name."""
        if case.model == "gat":
            return GATConv(features, width, heads=case.heads, concat=not last, dropout=DROPOUT)
        return SAGEConv(features, width, aggr="mean") if case.model == "graphsage" else GCNConv(features, width)


class PyGContender(OtherLibrary):
    """PyG's model.

    Args:
        case: the shared settings.
        layout: "edge_index": [2, E] int64; "csr": a torch CSR tensor of (target, source).
    """

    def __init__(self, case: Case, layout: str) -> None:
        super().__init__(case, PyGModel)
        self._layout = layout

    def structure(self, batch: Batch) -> Any:
        """Return the edges in the layout."""
        if self._layout == "edge_index":
            return batch.edge_index
        rowptr, col = batch.edges.rowptr.long(), batch.edges.col.long()
        ones = torch.ones(len(col), device=col.device)
        return torch.sparse_csr_tensor(rowptr, col, ones, batch.edges.shape, check_invariants=False)
