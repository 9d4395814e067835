"""GraphSAGE with mean aggregation."""

import torch
from torch import Tensor, nn

from gistgnn.nn.gnn import GNN, Layer
from gistgnn.nn.propagate import project, propagate
from gistgnn.nn.sparse import Adjacency, SparseMatrix


class SAGELayer(Layer):
    """[H, Ā H] Wᵀ + b with Ā the mean over the incoming edges.

    ``weight``: [d_out, 2·d_in], the columns of H before those of Ā H, so that a block D of the input's features owns
    the columns D and D + d_in; ``bias``: [d_out]. Both uniform within ±1/√d_in, as PyG's SAGEConv.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, 2 * in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew from torch's global generator."""
        bound = self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """[N, d_in] to [N, d_out]."""
        own, neighbours = self.weight.split(self.in_features, dim=1)  # the concatenation is never made
        return project(x, own, self.bias) + propagate(adj.mean, x, neighbours)


class GraphSAGE(GNN):
    """GraphSAGE of Hamilton et al., mean aggregation and concatenation. Arguments as for ``GNN``."""

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """A SAGELayer."""
        return SAGELayer(in_features, width)
