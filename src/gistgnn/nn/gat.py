"""GAT, the graph attention network, and GATv2, which has dynamic attention."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.attention import SLOPE, attend, dynamic_scores, edge_scores, scores_of_rows
from gistgnn.nn.gnn import GNN, Activation, Layer, Norm, project
from gistgnn.nn.sparse import SparseMatrix


class AttentionLayer(Layer):
    """A layer with attention heads, which stand side by side in its output, or are averaged.

    Evaluation layer by layer computes what attention reads of every node once, and then the sums of
    a block of nodes after another; see `add_scores` and `sums_of_block`.
    """

    bias: nn.Parameter

    def __init__(self, width: int, heads: int, *, concat: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.width = width
        self.concat = concat
        self.dropout = dropout
        self.out_features = heads * width if concat else width

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return the heads of ``a``: [N, heads·width] side by side, or their mean.

        The mean is [N, out_features].
        """
        return (
            a if self.concat else a.view(len(a), self.heads, self.width).mean(dim=1)
        ) + self.bias

    @abstractmethod
    def add_scores(self, z: Tensor) -> Tensor:
        """Return messages with all else that attention reads of their nodes: [N, c].

        The first heads·width columns are the features that are summed.
        """

    @abstractmethod
    def scores_of_edges(self, sources: Tensor, targets: Tensor, pattern: CSR) -> Tensor:
        """Return the scores of the entries of ``pattern``: [heads, nnz]; see `sums_of_block`."""

    def sums_of_block(
        self, sources: Tensor, targets: Tensor, pattern: CSR, *, in_place: bool
    ) -> Tensor:
        """Return what the nodes of a block receive in evaluation: [k, heads·width].

        Args:
            sources: rows of `add_scores` for all nodes that the pattern's columns stand for, [n,
                c].
            targets: those of the nodes of the block, [k, c].
            pattern: the entries (target, source), [k, n].
            in_place: read only those sources that have an entry, where they are.
        """
        scores = self.scores_of_edges(sources, targets, pattern)
        features = sources[:, : self.heads * self.width]
        return attend(features, scores, pattern, in_place=in_place)


# Channel c of head k is feature k·width + c. `weight`: [heads·width, d_in]; `source` and `target`:
# [heads, width]. With `concat` the output has out_features = heads·width; otherwise it is the
# heads' mean, of `width` features.
class GATLayer(AttentionLayer):
    """Every node attends to its sources and itself, as in PyG's GATConv.

    There are `heads` heads of `width` channels.
    """

    def __init__(
        self, in_features: int, width: int, heads: int, *, concat: bool, dropout: float
    ) -> None:
        super().__init__(width, heads, concat=concat, dropout=dropout)
        self.weight = nn.Parameter(torch.empty(heads * width, in_features))
        self.source = nn.Parameter(torch.empty(heads, width))
        self.target = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.zeros(self.out_features))
        for parameter in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter)

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return every head's features: [N, heads·width]."""
        return project(x, self.weight)

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        """Sum every head's features over the neighbours: [N, heads·width].

        They are weighted by the head's attention.
        """
        source, target = self.scores_of_nodes(z).chunk(2)  # [heads, N] each
        scores = edge_scores(source, target[:, : adj.attention.shape[0]], adj.attention, SLOPE)
        return attend(z, scores, adj.attention, self.dropout if self.training else 0.0)

    def add_scores(self, z: Tensor) -> Tensor:
        """Return the features, then every head's score as a source and as a target.

        They are [N, heads·width + 2·heads].
        """
        return torch.cat([z, self.scores_of_nodes(z).t()], dim=1)

    def scores_of_edges(self, sources: Tensor, targets: Tensor, pattern: CSR) -> Tensor:
        features = self.heads * self.width
        source = sources[:, features : features + self.heads]
        target = targets[:, features + self.heads :]
        return scores_of_rows(source, target, pattern, SLOPE)

    def scores_of_nodes(self, z: Tensor) -> Tensor:
        """Return every head's score as a source, then as a target: [2·heads, N]."""
        # One product over all features, with a block diagonal matrix [2·heads, heads·width] of the
        # attention vectors.
        eye = torch.eye(self.heads, dtype=self.source.dtype, device=self.source.device).unsqueeze(2)
        return F.linear(
            torch.cat([(eye * vectors).flatten(1) for vectors in (self.source, self.target)]), z
        )


# `weight`: [2·heads·width, d_in] is W_s over W_t; `attention`: [heads, width] is every head's a;
# `score_bias` is b, PyG's sum of the two maps' biases. What the first of them adds to the output is
# in `bias`.
class GATv2Layer(AttentionLayer):
    """Every node attends to its sources and itself, as in PyG's GATv2Conv.

    The scores are ⟨a, LeakyReLU(W_s h_j + W_t h_i + b)⟩.
    """

    def __init__(
        self, in_features: int, width: int, heads: int, *, concat: bool, dropout: float
    ) -> None:
        super().__init__(width, heads, concat=concat, dropout=dropout)
        self.weight = nn.Parameter(torch.empty(2 * heads * width, in_features))
        self.score_bias = nn.Parameter(torch.zeros(heads * width))
        self.attention = nn.Parameter(torch.empty(heads, width))
        self.bias = nn.Parameter(torch.zeros(self.out_features))
        for weight in (*self.weight.data.chunk(2), self.attention):
            nn.init.xavier_uniform_(weight)

    def message(self, x: Tensor | SparseMatrix, adj: Adjacency) -> Tensor:
        """Return every head's features as a source, then as a target: [N, 2·heads·width]."""
        return project(
            x, self.weight, torch.cat([torch.zeros_like(self.score_bias), self.score_bias])
        )

    def aggregate(self, z: Tensor, adj: Adjacency) -> Tensor:
        pattern = adj.attention
        source, target = z.chunk(2, dim=1)
        scores = dynamic_scores(source, target[: pattern.shape[0]], self.attention, pattern, SLOPE)
        return attend(source, scores, pattern, self.dropout if self.training else 0.0)

    def add_scores(self, z: Tensor) -> Tensor:
        """Return the messages, which are all that attention reads."""
        return z

    def scores_of_edges(self, sources: Tensor, targets: Tensor, pattern: CSR) -> Tensor:
        source, _ = sources.chunk(2, dim=1)
        _, target = targets.chunk(2, dim=1)
        return dynamic_scores(source, target, self.attention, pattern, SLOPE)


class GAT(GNN):
    """GAT of Veličković et al.

    Hidden layers concatenate their heads; the output layer averages them.

    Args:
        in_features: d_0.
        widths: channels per head of every hidden layer; layer l has heads·d_l features.
        out_features: number of classes.
        heads: attention heads of every layer.
        dropout: of hidden features, in [0, 1).
        norm, activation: as for `GNN`, over all heads·d_l features. The published GAT has "elu".
        attention_dropout: of attention coefficients, in [0, 1), as in the published GAT. Defaults
            to ``dropout``.
    """

    layer: ClassVar[type[Any]] = GATLayer

    def __init__(
        self,
        in_features: int,
        widths: Sequence[int],
        out_features: int,
        heads: int = 4,
        *,
        dropout: float = 0.0,
        norm: Norm = "none",
        activation: Activation = "relu",
        attention_dropout: float | None = None,
    ) -> None:
        if heads < 1:
            raise InputError(f"heads {heads}: give at least one")
        dropout_of_attention = dropout if attention_dropout is None else attention_dropout
        if not 0 <= dropout_of_attention < 1:
            raise InputError(
                f"attention_dropout {dropout_of_attention}: give a probability in [0, 1)"
            )
        # the base class calls make_layer, which reads them
        self.heads = heads
        self.attention_dropout = dropout_of_attention
        super().__init__(
            in_features, widths, out_features, dropout=dropout, norm=norm, activation=activation
        )

    def make_layer(self, in_features: int, width: int, *, last: bool) -> Layer:
        return type(self).layer(
            in_features, width, self.heads, concat=not last, dropout=self.attention_dropout
        )


class GATv2(GAT):
    """GATv2 of Brody et al.: which source a node attends to most depends on the node. Arguments:
    see `GAT`.
    """

    layer = GATv2Layer
