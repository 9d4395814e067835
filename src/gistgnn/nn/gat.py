"""The graph attention network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.errors import InputError
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.attention import attend, attention_coefficients
from gistgnn.nn.dropout import dropout as drop
from gistgnn.nn.gnn import GNN, Layer, Norm
from gistgnn.nn.propagate import project
from gistgnn.nn.sparse import SparseMatrix

_SLOPE = 0.2  # of the scores' LeakyReLU, as published


class GATLayer(Layer):
    """Attention of every node over its sources and itself, with ``heads`` heads of ``width`` channels.

    Channel c of head k is feature k·width + c. ``weight``: [heads·width, d_in] and the attention vectors ``source``
    and ``target``: [heads, width], Glorot uniform; ``bias``, zero: as PyG's GATConv. ``concat`` says whether the
    output is the heads side by side (out_features = heads·width) or their mean (out_features = width).
    """

    reads_own = False

    def __init__(self, in_features: int, width: int, heads: int, *, concat: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.width = width
        self.edge_scores = 2 * heads
        self.concat = concat
        self.dropout = dropout
        self.out_features = heads * width if concat else width
        self.weight = nn.Parameter(torch.empty(heads * width, in_features))
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(self.out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew from torch's global generator."""
        for parameter in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter)
        nn.init.zeros_(self.bias)

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Every head's features: [N, heads·width]."""
        return project(x, self.weight)

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Every head's features, summed over the neighbours by its attention: [N, heads·width]."""
        source, target = self.scores(z).chunk(2)  # [heads, N] each
        target = target[:, : adj.attention.shape[0]]
        coefficients = attention_coefficients(source, target, adj.attention, _SLOPE)
        return attend(z, drop(coefficients, self.dropout, self.training), adj.attention)

    def scores(self, z: Tensor) -> Tensor:
        """Every head's part of the score as a source, then as a target: [2·heads, N]."""
        return F.linear(self._score_weight(), z)

    def aggregate_block(self, z: Tensor, scores: Tensor, adj: Adjacency, nodes: slice, columns: slice) -> Tensor:
        """Some nodes' sums, for the columns of some heads or parts of heads."""
        pattern, _ = adj.attention.rows(nodes)
        heads = range(columns.start // self.width, -(-columns.stop // self.width))
        received = z.new_empty(nodes.stop - nodes.start, z.shape[1])
        for head in heads:
            own = slice(
                max(head * self.width, columns.start) - columns.start,
                min((head + 1) * self.width, columns.stop) - columns.start,
            )
            source, target = scores[head : head + 1], scores[self.heads + head, nodes].unsqueeze(0)
            coefficients = attention_coefficients(source, target, pattern, _SLOPE)
            received[:, own] = attend(z[:, own], coefficients, pattern)
        return received

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """The heads side by side, or their mean: [N, out_features]."""
        if not self.concat:
            a = a.view(len(a), self.heads, self.out_features).mean(dim=1)
        return a + self.bias

    def _score_weight(self) -> Tensor:
        """Both kinds of attention vectors as one product over all features: [2·heads, heads·width], block diagonal."""
        own_head = torch.eye(self.heads, dtype=self.source.dtype, device=self.source.device).unsqueeze(2)
        return torch.cat([(own_head * vectors).flatten(1) for vectors in (self.source, self.target)])


class GAT(GNN):
    """GAT of Veličković et al.: hidden layers put their heads side by side, the output layer averages them.

    Args:
        in_features: features of a node, d_0.
        widths: channels per head of every hidden layer, so that layer l has heads·d_l features.
        out_features: classes.
        heads: attention heads of every layer.
        dropout: of hidden features and of attention coefficients, in [0, 1).
        norm: as for ``GNN``, over all heads·d_l features.

    Raises:
        InputError: as for ``GNN``, and if there is no head.
    """

    def __init__(
        self,
        in_features: int,
        widths: Sequence[int],
        out_features: int,
        heads: int = 4,
        *,
        dropout: float = 0.0,
        norm: Norm = "none",
    ) -> None:
        if heads < 1:
            raise InputError(f"heads {heads}: give at least one")
        self.heads = heads  # make_layer, called by the base class, reads it
        super().__init__(in_features, widths, out_features, dropout=dropout, norm=norm)

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """A GATLayer."""
        return GATLayer(in_features, width, self.heads, concat=not last, dropout=self.dropout)
