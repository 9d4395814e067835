"""The graph attention network (GAT)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.errors import InputError
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.attention import SLOPE, attend, edge_scores
from gistgnn.nn.gnn import GNN, Layer, Norm, project
from gistgnn.nn.sparse import SparseMatrix


class GATLayer(Layer):
    """Every node attends to its sources and itself, with ``heads`` heads of ``width`` channels; as PyG's GATConv.

    Channel c of head k is feature k·width + c. ``weight``: [heads·width, d_in] and the attention vectors ``source`` and
    ``target``: [heads, width] are Glorot uniform; ``bias`` is zero. With ``concat`` the output is the heads side by
    side (out_features = heads·width), otherwise their mean (out_features = width).
    """

    update_reads_input = False

    def __init__(self, in_features: int, width: int, heads: int, *, concat: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.width, self.edge_scores = heads, width, 2 * heads
        self.concat, self.dropout = concat, dropout
        self.out_features = heads * width if concat else width
        self.weight = nn.Parameter(torch.empty(heads * width, in_features))
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(self.out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from torch's global generator."""
        for parameter in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter)
        nn.init.zeros_(self.bias)

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return every head's features: [N, heads·width]."""
        return project(x, self.weight)

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Sum every head's features over the neighbours, weighted by the head's attention: [N, heads·width]."""
        source, target = self.scores(z).chunk(2)  # [heads, N] each
        scores = edge_scores(source, target[:, : adj.attention.shape[0]], adj.attention, SLOPE)
        return attend(z, scores, adj.attention, self.dropout if self.training else 0.0)

    def scores(self, z: Tensor) -> Tensor:
        """Return every head's score as a source, then as a target: [2·heads, N]."""
        # One product over all features, with a block diagonal matrix [2·heads, heads·width] of the attention vectors.
        eye = torch.eye(self.heads, dtype=self.source.dtype, device=self.source.device).unsqueeze(2)
        return F.linear(torch.cat([(eye * vectors).flatten(1) for vectors in (self.source, self.target)]), z)

    def aggregate_block(self, z: Tensor, scores: Tensor, adj: Adjacency, nodes: slice, columns: slice) -> Tensor:
        """Return some nodes' sums, for columns that may cut heads in parts."""
        pattern = adj.attention_rows(nodes).to(z.device)
        out = z.new_empty(nodes.stop - nodes.start, z.shape[1])
        for head in range(columns.start // self.width, -(-columns.stop // self.width)):
            start, stop = head * self.width - columns.start, (head + 1) * self.width - columns.start
            channels = slice(max(start, 0), min(stop, columns.stop - columns.start))
            source, target = scores[head : head + 1], scores[self.heads + head, nodes].unsqueeze(0)
            out[:, channels] = attend(z[:, channels], edge_scores(source, target, pattern, SLOPE), pattern)
        return out

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return the heads side by side, or their mean: [N, out_features]."""
        return joined_heads(a, self.heads, concat=self.concat) + self.bias


def joined_heads(a: Tensor, heads: int, *, concat: bool) -> Tensor:
    """Return the features of all heads, [N, heads·d], side by side as they are, or their mean: [N, d]."""
    return a if concat else a.view(len(a), heads, a.shape[1] // heads).mean(dim=1)


class GAT(GNN):
    """GAT of Veličković et al.: hidden layers concatenate their heads, the output layer averages them.

    Args:
        in_features: d_0.
        widths: channels per head of every hidden layer; layer l has heads·d_l features.
        out_features: number of classes.
        heads: attention heads of every layer.
        dropout: of hidden features and of attention coefficients, in [0, 1).
        norm: as for `GNN`, over all heads·d_l features.

    Raises:
        InputError: as for `GNN`, or ``heads`` is below 1.
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
        self.heads = heads  # the base class calls make_layer, which reads it
        super().__init__(in_features, widths, out_features, dropout=dropout, norm=norm)

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """Return a `GATLayer`."""
        return GATLayer(in_features, width, self.heads, concat=not last, dropout=self.dropout)
