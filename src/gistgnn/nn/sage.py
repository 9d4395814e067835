"""GraphSAGE with mean aggregation."""

import torch
from torch import Tensor, nn

from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.gnn import GNN, Layer, Propagation, project
from gistgnn.nn.linear import fits, linear
from gistgnn.nn.sparse import SparseMatrix


class SAGELayer(Propagation):
    """[H, Ā H] Wᵀ + b, where Ā averages over the incoming edges; initialised like PyG's SAGEConv.

    ``weight``: [d_out, 2·d_in], the columns of H before the columns of Ā H: a block D of input features selects the
    columns D and D + d_in. ``bias``: [d_out]. Both are uniform within ±1/√d_in.
    """

    operator = "mean"

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, 2 * in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from torch's global generator."""
        bound = self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    @property
    def neighbour_weight(self) -> Tensor:
        """The columns of W that multiply Ā H: [d_out, d_in]."""
        return self.weight[:, self.in_features :]

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return [H, Ā H] Wᵀ + b: [N, d_out], for the first N nodes of ``x``."""
        if x.shape[0] > len(a):
            x = x[: len(a)] if isinstance(x, Tensor) else x.rows(slice(0, len(a)))
        if self.is_projected(x, a):
            return project(x, self.weight[:, : self.in_features], self.bias) + a
        assert isinstance(x, Tensor)
        return project(torch.cat([x, a], dim=1), self.weight, self.bias)

    def forward(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return the layer's output: [N, d_out]. For a graph's constant features [X, Ā X] is computed once."""
        if type(self) is not SAGELayer or not isinstance(x, Tensor):  # a subclass may have steps of its own
            return super().forward(x, adj)
        if adj.caches(x):
            return linear(self.weight, self.bias, adj.joined(self.operator, x))
        if fits(self.weight):
            return linear(self.weight, self.bias, x, getattr(adj, self.operator))
        return super().forward(x, adj)


class GraphSAGE(GNN):
    """GraphSAGE of Hamilton et al. with mean aggregation and concatenation. Arguments: see `GNN`."""

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """Return a `SAGELayer`."""
        return SAGELayer(in_features, width)
