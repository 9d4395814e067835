"""The graph convolutional network (GCN)."""

import torch
from torch import Tensor, nn

from gistgnn.nn.gnn import GNN, Layer, Propagation, project
from gistgnn.nn.sparse import SparseMatrix


class GCNLayer(Propagation):
    """The graph convolution Ā H Θ + b of eq. 1, initialised like PyG's GCNConv.

    ``weight`` is Θᵀ: [d_out, d_in], Glorot uniform. ``bias``: [d_out], zero.
    """

    operator = "gcn"
    update_reads_input = False

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from torch's global generator."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return Ā H Θ + b: [N, d_out]."""
        return a + self.bias if self.is_projected(x, a) else project(a, self.weight, self.bias)


class GCN(GNN):
    """GCN of Kipf and Welling: H' = σ(Ā H Θ) with Ā = D̃^-1/2 (A + I) D̃^-1/2 (eq. 1). Arguments: see `GNN`."""

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """Return a `GCNLayer`."""
        return GCNLayer(in_features, width)
