"""The graph attention network (GAT), and attention without a tensor [entries, heads, channels]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gistgnn.errors import InputError
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.dropout import dropout as drop
from gistgnn.nn.gnn import GNN, Layer, Norm, project
from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix

_SLOPE = 0.2  # of the scores' LeakyReLU, as published


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
        coefficients = attention_coefficients(source, target[:, : adj.attention.shape[0]], adj.attention, _SLOPE)
        return attend(z, drop(coefficients, self.dropout, self.training), adj.attention)

    def scores(self, z: Tensor) -> Tensor:
        """Return every head's score as a source, then as a target: [2·heads, N]."""
        # One product over all features, with a block diagonal matrix [2·heads, heads·width] of the attention vectors.
        eye = torch.eye(self.heads, dtype=self.source.dtype, device=self.source.device).unsqueeze(2)
        return F.linear(torch.cat([(eye * vectors).flatten(1) for vectors in (self.source, self.target)]), z)

    def aggregate_block(self, z: Tensor, scores: Tensor, adj: Adjacency, nodes: slice, columns: slice) -> Tensor:
        """Return some nodes' sums, for columns that may cut heads in parts."""
        pattern, _ = adj.attention.rows(nodes)
        out = z.new_empty(nodes.stop - nodes.start, z.shape[1])
        for head in range(columns.start // self.width, -(-columns.stop // self.width)):
            start, stop = head * self.width - columns.start, (head + 1) * self.width - columns.start
            channels = slice(max(start, 0), min(stop, columns.stop - columns.start))
            source, target = scores[head : head + 1], scores[self.heads + head, nodes].unsqueeze(0)
            coefficients = attention_coefficients(source, target, pattern, _SLOPE)
            out[:, channels] = attend(z[:, channels], coefficients, pattern)
        return out

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        """Return the heads side by side, or their mean: [N, out_features]."""
        if not self.concat:
            a = a.view(len(a), self.heads, self.out_features).mean(dim=1)
        return a + self.bias


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


def attention_coefficients(source: Tensor, target: Tensor, pattern: Pattern, slope: float) -> Tensor:
    """Compute the softmax of LeakyReLU(source[j] + target[i]) over the entries (i, j) of each row i, for every head.

    ``source``: [heads, C] and ``target``: [heads, R] are the columns' and the rows' share of the score. The result is
    [heads, nnz], in the pattern's order, differentiable once in ``source`` and ``target``.
    """
    coefficients: Tensor = _Coefficients.apply(_to_float(source), _to_float(target), pattern, slope)
    return coefficients


def attend(features: Tensor, coefficients: Tensor, pattern: Pattern) -> Tensor:
    """Sum every head's features over each row's entries, weighted by the head's coefficients.

    ``features``: [C, heads·d], the channels of one head side by side; ``coefficients``: [heads, nnz], in the pattern's
    order. Return [R, heads·d], differentiable once in ``features`` and ``coefficients``.
    """
    out: Tensor = _Attend.apply(_to_float(features), _to_float(coefficients), pattern)
    return out


def _to_float(x: Tensor) -> Tensor:
    """Convert autocast's bfloat16 to float32: the CPU has no sparse product in bfloat16."""
    return x.float() if x.dtype == torch.bfloat16 else x


class _OneByOne(torch.autograd.Function):
    """A function that vmap applies to one sub-GCN after another."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        members = [
            [x if dim is None else x.select(dim, i) for x, dim in zip(arguments, in_dims, strict=True)]
            for i in range(info.batch_size)
        ]
        return torch.stack([cls.apply(*member) for member in members]), 0


class _Coefficients(_OneByOne):
    """Saves only its result for the backward pass, no other tensor of entries. Row sums are CSR products."""

    @staticmethod
    def forward(source: Tensor, target: Tensor, pattern: Pattern, slope: float) -> Tensor:
        row = pattern.row
        scores = F.leaky_relu(_edge_sums(source, target, pattern), slope)
        peak = scores.new_full(target.shape, -torch.inf)
        peak.scatter_reduce_(1, row.long().expand_as(scores), scores, "amax")
        out = (scores - peak.index_select(1, row)).exp_()
        return out.div_(_row_sums(pattern, out).index_select(1, row))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Pattern, float], output: Tensor) -> None:
        source, target, ctx.pattern, ctx.slope = inputs
        ctx.save_for_backward(source, target, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        source, target, out = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        grad = grad * out
        grad.addcmul_(out, _row_sums(pattern, grad).index_select(1, pattern.row), value=-1)
        grad = torch.where(_edge_sums(source, target, pattern) > 0, grad, grad * ctx.slope)
        transposed, order = pattern.transpose
        return _row_sums(transposed, grad.index_select(1, order)), _row_sums(pattern, grad), None, None


class _Attend(_OneByOne):
    """One CSR product per head. Backward: one with the transpose, and one sampled at the pattern's entries."""

    @staticmethod
    def forward(features: Tensor, coefficients: Tensor, pattern: Pattern) -> Tensor:
        return _products(pattern, coefficients, features)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Pattern], output: Tensor) -> None:
        features, coefficients, ctx.pattern = inputs
        ctx.save_for_backward(features, coefficients)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        features, coefficients = ctx.saved_tensors
        to_features = to_coefficients = None
        if ctx.needs_input_grad[0]:
            transposed, order = ctx.pattern.transpose
            to_features = _products(transposed, coefficients.index_select(1, order), grad)
        if ctx.needs_input_grad[1]:
            to_coefficients = _sampled(ctx.pattern, coefficients, grad, features)
        return to_features, to_coefficients, None


def _edge_sums(source: Tensor, target: Tensor, pattern: Pattern) -> Tensor:
    """Return source[j] + target[i] at every entry (i, j): [heads, nnz]."""
    return source.index_select(1, pattern.col) + target.index_select(1, pattern.row)


def _row_sums(pattern: Pattern, x: Tensor) -> Tensor:
    return _products(pattern, x, x.new_ones(pattern.shape[1], len(x))).t()


def _products(pattern: Pattern, coefficients: Tensor, h: Tensor) -> Tensor:
    """Multiply every head's matrix with the head's columns of ``h``: [C, heads·d] to [R, heads·d]."""
    out, heads = h.new_empty(pattern.shape[0], h.shape[1]), len(coefficients)
    for value, part, target in zip(coefficients, h.chunk(heads, dim=1), out.chunk(heads, dim=1), strict=True):
        target.addmm_(pattern.csr(value), part, beta=0)
    return out


def _sampled(pattern: Pattern, coefficients: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return ⟨left[i], right[j]⟩ at the entries (i, j) for every head: [R, heads·d], [C, heads·d] to [heads, nnz]."""
    out, heads = torch.empty_like(coefficients), len(coefficients)
    # torch's sampled product takes at most R·C entries; repeated edges of a tiny graph can exceed that.
    for piece, entries in pattern.pieces(pattern.shape[0] * pattern.shape[1]):
        for head, (a, b) in enumerate(zip(left.chunk(heads, dim=1), right.chunk(heads, dim=1), strict=True)):
            at = piece.csr(coefficients[head, entries])
            out[head, entries] = torch.sparse.sampled_addmm(at, a, b.t(), beta=0.0).values()
    return out
