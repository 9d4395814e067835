"""The graph isomorphism network (GIN)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.nn.gnn import GNN, Layer, Norm, Propagation, make_norm, project
from gistgnn.nn.sparse import SparseMatrix


class GINLayer(Propagation):
    """MLP((A + I) H), the sum over the incoming edges and the node itself; as PyG's GINConv with ε = 0.

    The MLP is ``weight``: [inside, d_in] and ``bias``, norm, ReLU, ``second_weight``: [d_out, inside] and
    ``second_bias``, drawn as nn.Linear draws them.
    """

    operator = "sum"
    update_reads_input = False

    def __init__(self, in_features: int, inside: int, out_features: int, norm: Norm = "none") -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(inside, in_features))
        self.bias = nn.Parameter(torch.empty(inside))
        self.norm = make_norm(norm, inside)
        self.second_weight = nn.Parameter(torch.empty(out_features, inside))
        self.second_bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from torch's global generator, and reset the statistics of batch norm."""
        for weight, bias in ((self.weight, self.bias), (self.second_weight, self.second_bias)):
            bound = weight.shape[1] ** -0.5
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)
        if isinstance(self.norm, nn.BatchNorm1d):
            self.norm.reset_parameters()

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return the MLP's output for the sums ``a``: [N, d_out]."""
        h = a + self.bias if self.is_projected(x, a) else project(a, self.weight, self.bias)
        return project(F.relu(self.norm(h), inplace=True), self.second_weight, self.second_bias)


class GIN(GNN):
    """GIN of Xu et al. for nodes: an MLP after every sum. Inside, the MLP has its layer's width.

    The output layer's has the width of the last hidden layer. ``norm`` also stands inside the MLPs, as in PyG's GIN:
    sums grow with a node's degree. Arguments: see `GNN`.
    """

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """Return a `GINLayer`."""
        return GINLayer(in_features, in_features if last else width, width, self.norm)
