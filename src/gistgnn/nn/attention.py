"""Attention over the entries of a pattern, without a tensor of [entries, heads, channels]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gistgnn.nn.pattern import Pattern


def edge_softmax(scores: Tensor, pattern: Pattern) -> Tensor:
    """Softmax of every head's scores over the entries of each row. ``scores`` and result: [heads, nnz]."""
    coefficients: Tensor = _EdgeSoftmax.apply(scores, pattern)
    return coefficients


def attend(features: Tensor, coefficients: Tensor, pattern: Pattern) -> Tensor:
    """Every head's features, summed over each row's entries with the head's coefficients.

    Args:
        features: [C, heads·d], a head's channels contiguous.
        coefficients: [heads, nnz], in the pattern's order.
        pattern: [R, C].

    Returns:
        [R, heads·d], differentiable (once) in features and coefficients.
    """
    out: Tensor = _Attend.apply(features, coefficients, pattern)
    return out


def _row_sums(x: Tensor, pattern: Pattern) -> Tensor:
    """[heads, nnz] to [heads, R]."""
    return x.new_zeros(x.shape[0], pattern.shape[0]).index_add_(1, pattern.row, x)


class _EdgeSoftmax(torch.autograd.Function):
    """Keeps only its result for the backward pass."""

    @staticmethod
    def forward(scores: Tensor, pattern: Pattern) -> Tensor:
        row = pattern.row
        peak = scores.new_full((scores.shape[0], pattern.shape[0]), -torch.inf)
        peak.scatter_reduce_(1, row.long().expand_as(scores), scores, "amax")
        out = (scores - peak.index_select(1, row)).exp_()
        return out.div_(_row_sums(out, pattern).index_select(1, row))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Pattern], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.pattern = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        weighted = grad * out
        means = _row_sums(weighted, ctx.pattern).index_select(1, ctx.pattern.row)
        return weighted.addcmul_(out, means, value=-1), None


class _Attend(torch.autograd.Function):
    """One CSR product per head; backward one with the transpose, and one sampled at the entries."""

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


def _products(pattern: Pattern, coefficients: Tensor, h: Tensor) -> Tensor:
    """Every head's matrix times its part of ``h``: [C, heads·d] to [R, heads·d]."""
    heads = coefficients.shape[0]
    out = h.new_empty(pattern.shape[0], h.shape[1])
    for value, part, target in zip(coefficients, h.chunk(heads, dim=1), out.chunk(heads, dim=1), strict=True):
        target.addmm_(pattern.csr(value), part, beta=0)
    return out


def _sampled(pattern: Pattern, coefficients: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """⟨left[i], right[j]⟩ of every head at the pattern's entries (i, j): [R, heads·d], [C, heads·d] to [heads, nnz]."""
    out = torch.empty_like(coefficients)
    heads = len(out)
    # torch's sampled product holds R·C entries at most, which repeated edges of a tiny graph can exceed.
    for piece, entries in pattern.pieces(pattern.shape[0] * pattern.shape[1]):
        for head, (a, b) in enumerate(zip(left.chunk(heads, dim=1), right.chunk(heads, dim=1), strict=True)):
            at = piece.csr(coefficients[head, entries])
            out[head, entries] = torch.sparse.sampled_addmm(at, a, b.t(), beta=0.0).values()
    return out
