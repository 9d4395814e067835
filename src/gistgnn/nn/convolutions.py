"""GCN, GraphSAGE and GIN: the models whose layers multiply by one operator."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.functional import is_one_function, linear
from gistgnn.nn.gnn import GNN, Layer, Norm, Propagation, make_norm, project
from gistgnn.nn.sparse import SparseMatrix


class GCNLayer(Propagation):
    """The graph convolution Ā H Θ + b of eq. 1, as PyG's GCNConv.

    ``weight`` is Θᵀ: [d_out, d_in], Glorot uniform.
    """

    operator = "gcn"

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        return a + self.bias if self.is_projected(x, a) else project(a, self.weight, self.bias)


class GCN(GNN):
    """GCN of Kipf and Welling: H' = σ(Ā H Θ) with Ā = D̃^-1/2 (A + I) D̃^-1/2 (eq. 1). Arguments:
    see `GNN`.
    """

    layer = GCNLayer


# `weight`: [d_out, 2·d_in], the columns of H before those of Ā H: a block D of inputs selects D and
# D + d_in.
class SAGELayer(Propagation):
    """[H, Ā H] Wᵀ + b, where Ā averages over the incoming edges.

    It is initialised like PyG's SAGEConv.
    """

    operator = "mean"

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, 2 * in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(self.in_features**-0.5), self.in_features**-0.5)

    @property
    def neighbour_weight(self) -> Tensor:
        """The columns of W that multiply Ā H: [d_out, d_in]."""
        return self.weight[:, self.in_features :]

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        if x.shape[0] > len(a):
            x = x[: len(a)] if isinstance(x, Tensor) else x.rows(slice(0, len(a)))
        if self.is_projected(x, a):
            return project(x, self.weight[:, : self.in_features], self.bias) + a
        assert isinstance(x, Tensor)
        return project(torch.cat([x, a], dim=1), self.weight, self.bias)

    def forward(
        self, x: Tensor | SparseMatrix, adj: Adjacency, nodes: Tensor | None = None
    ) -> Tensor:
        """Return the layer's output: [N, d_out].

        For a graph's constant features [X, Ā X] is computed once.
        """
        is_plain = type(self) is SAGELayer  # a subclass may have steps of its own
        if nodes is not None or not is_plain or not isinstance(x, Tensor):
            return super().forward(x, adj, nodes)
        if adj.is_constant(x):
            return linear(self.weight, self.bias, adj.joined(self.operator, x))
        if is_one_function(self.weight):
            return linear(self.weight, self.bias, x, getattr(adj, self.operator))
        return super().forward(x, adj)


class GraphSAGE(GNN):
    """GraphSAGE of Hamilton et al. with mean aggregation and concatenation.

    Arguments: see `GNN`.
    """

    layer = SAGELayer


# The MLP is `weight` [inside, d_in] and `bias`, norm, ReLU, `second_weight` [d_out, inside] and
# `second_bias`.
class GINLayer(Propagation):
    """MLP((A + I) H): the sum over the incoming edges and the node itself.

    It is PyG's GINConv with ε = 0.
    """

    operator = "sum"

    def __init__(
        self, in_features: int, inside: int, out_features: int, norm: Norm = "none"
    ) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(inside, in_features))
        self.bias = nn.Parameter(torch.empty(inside))
        self.norm = make_norm(norm, inside)
        self.second_weight = nn.Parameter(torch.empty(out_features, inside))
        self.second_bias = nn.Parameter(torch.empty(out_features))
        for weight, bias in ((self.weight, self.bias), (self.second_weight, self.second_bias)):
            bound = weight.shape[1] ** -0.5
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def saves_time(self, count: int, x: Tensor | SparseMatrix, adj: Adjacency) -> bool:
        # batch norm takes a mean over all nodes
        treats_nodes_alone = isinstance(self.norm, nn.LayerNorm | nn.Identity)
        return treats_nodes_alone and super().saves_time(count, x, adj)

    @property
    def columns_of_update(self) -> int:
        return len(self.weight) + len(self.second_weight)

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        h = a + self.bias if self.is_projected(x, a) else project(a, self.weight, self.bias)
        return project(F.relu(self.norm(h), inplace=True), self.second_weight, self.second_bias)


class GIN(GNN):
    """GIN of Xu et al. for nodes: an MLP after every sum. Inside, the MLP has its layer's width.

    The output layer's MLP has the width of the last hidden layer. ``norm`` also stands inside the
    MLPs, as in PyG's GIN: sums grow with a node's degree. Arguments: see `GNN`.
    """

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        return GINLayer(in_features, in_features if last else width, width, self.norm)
