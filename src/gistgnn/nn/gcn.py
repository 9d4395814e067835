"""The graph convolutional network."""

import torch
from torch import Tensor, nn

from gistgnn.nn.gnn import GNN, Layer
from gistgnn.nn.propagate import propagate
from gistgnn.nn.sparse import Adjacency, SparseMatrix


class GCNLayer(Layer):
    """Ā H Θ + b (eq. 1). ``weight``: Θᵀ, [d_out, d_in], Glorot uniform; ``bias``: [d_out], zero: as PyG's GCNConv."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew from torch's global generator."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """[N, d_in] to [N, d_out]."""
        return propagate(adj.gcn, x, self.weight, self.bias)


class GCN(GNN):
    """GCN of Kipf and Welling, H' = σ(Ā H Θ) with Ā = D̃^-1/2 (A + I) D̃^-1/2 (eq. 1). Arguments as for ``GNN``."""

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """A GCNLayer."""
        return GCNLayer(in_features, width)
