"""GATv2, the graph attention network with dynamic attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.attention import SLOPE, attend, dynamic_scores
from gistgnn.nn.gat import GAT, joined_heads
from gistgnn.nn.gnn import Layer, project
from gistgnn.nn.sparse import SparseMatrix


class GATv2Layer(Layer):
    """Every node attends to its sources and itself by ⟨a, LeakyReLU(W_s h_j + W_t h_i + b)⟩; as PyG's GATv2Conv.

    ``weight``: [2·heads·width, d_in] is W_s over W_t. ``score_bias``: [heads·width] is b. It is PyG's sum of the two
    maps' biases; what the first of them adds to the output is in ``bias``. ``attention``: [heads, width] is every
    head's a. Weights are Glorot uniform, biases zero. Heads and ``concat`` are as in `gistgnn.nn.gat.GATLayer`.
    """

    update_reads_input = False
    cuts_messages = False  # an edge's score is a sum over all columns of a head

    def __init__(self, in_features: int, width: int, heads: int, *, concat: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.concat, self.dropout = concat, dropout
        self.out_features = heads * width if concat else width
        self.weight = nn.Parameter(torch.empty(2 * heads * width, in_features))
        self.score_bias = nn.Parameter(torch.empty(heads * width))
        self.attention = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.empty(self.out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from torch's global generator."""
        for weight in self.weight.data.chunk(2):
            nn.init.xavier_uniform_(weight)
        nn.init.xavier_uniform_(self.attention)
        for bias in (self.score_bias, self.bias):
            nn.init.zeros_(bias)

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return every head's features as a source, then as a target: [N, 2·heads·width]."""
        return project(x, self.weight, torch.cat([torch.zeros_like(self.score_bias), self.score_bias]))

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Sum every head's features over the neighbours, weighted by the head's attention: [N, heads·width]."""
        pattern = adj.attention
        source, target = z.chunk(2, dim=1)
        scores = dynamic_scores(source, target[: pattern.shape[0]], self.attention, pattern, SLOPE)
        return attend(source, scores, pattern, self.dropout if self.training else 0.0)

    def aggregate_block(self, z: Tensor, scores: Tensor, adj: Adjacency, nodes: slice, columns: slice) -> Tensor:
        """Return some nodes' sums, given all columns of the messages."""
        pattern = adj.attention_rows(nodes).to(z.device)
        out = z.new_empty(nodes.stop - nodes.start, z.shape[1] // 2)
        source, target, each = ((x.chunk(self.heads, dim=1)) for x in (*z.chunk(2, dim=1), out))
        for own, other, vector, part in zip(source, target, self.attention.split(1), each, strict=True):
            part.copy_(attend(own, dynamic_scores(own, other[nodes], vector, pattern, SLOPE), pattern))
        return out

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return the heads side by side, or their mean: [N, out_features]."""
        return joined_heads(a, self.heads, concat=self.concat) + self.bias


class GATv2(GAT):
    """GATv2 of Brody et al.: which source a node attends to most depends on the node. Arguments: see `GAT`."""

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        """Return a `GATv2Layer`."""
        return GATv2Layer(in_features, width, self.heads, concat=not last, dropout=self.dropout)
