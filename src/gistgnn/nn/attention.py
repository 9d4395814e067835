"""Attention over a graph's edges, without a tensor [entries, heads, channels]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gistgnn.nn.function import Function
from gistgnn.nn.pattern import Pattern

SLOPE = 0.2  # of the scores' LeakyReLU, as published
PIECE = 2**20  # numbers of the features of entries that are held at once: a few fit into a processor's cache


def attention_coefficients(source: Tensor, target: Tensor, pattern: Pattern, slope: float) -> Tensor:
    """Compute the softmax of LeakyReLU(source[j] + target[i]) over the entries (i, j) of each row i, for every head.

    ``source``: [heads, C] and ``target``: [heads, R] are the columns' and the rows' share of the score. The result is
    [heads, nnz], in the pattern's order, differentiable once in ``source`` and ``target``.
    """
    coefficients: Tensor = _Coefficients.apply(_to_float(source), _to_float(target), pattern, slope)
    return coefficients


def dynamic_coefficients(source: Tensor, target: Tensor, vectors: Tensor, pattern: Pattern, slope: float) -> Tensor:
    """Compute the softmax of ⟨a, LeakyReLU(source[j] + target[i])⟩ over the entries (i, j) of each row i, per head.

    ``source``: [C, heads·d] and ``target``: [R, heads·d] are features, the channels of one head side by side;
    ``vectors``: [heads, d] is every head's a. The result is [heads, nnz], in the pattern's order, differentiable once.
    """
    scores: Tensor = _Dynamic.apply(_to_float(source), _to_float(target), _to_float(vectors), pattern, slope)
    coefficients: Tensor = _Softmax.apply(scores, pattern)
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


class _OneByOne(Function):
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
        return _softmax(F.leaky_relu(_edge_sums(source, target, pattern), slope), pattern)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Pattern, float], output: Tensor) -> None:
        source, target, ctx.pattern, ctx.slope = inputs
        ctx.save_for_backward(source, target, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        source, target, out = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        grad = _softmax_gradient(grad, out, pattern)
        grad = torch.where(_edge_sums(source, target, pattern) > 0, grad, grad * ctx.slope)
        transposed, order = pattern.transpose
        return _row_sums(transposed, grad.index_select(1, order)), _row_sums(pattern, grad), None, None


class _Softmax(_OneByOne):
    """The softmax of scores [heads, nnz] over each row's entries."""

    @staticmethod
    def forward(scores: Tensor, pattern: Pattern) -> Tensor:
        return _softmax(scores, pattern)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Pattern], output: Tensor) -> None:
        ctx.pattern = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return _softmax_gradient(grad, out, ctx.pattern), None


class _Dynamic(_OneByOne):
    """GATv2's scores [heads, nnz]. The features of entries exist for one head and some entries at a time."""

    @staticmethod
    def forward(source: Tensor, target: Tensor, vectors: Tensor, pattern: Pattern, slope: float) -> Tensor:
        out, heads = source.new_empty(len(vectors), pattern.nnz), len(vectors)
        for head, (left, right) in enumerate(zip(source.chunk(heads, 1), target.chunk(heads, 1), strict=True)):
            for entries in _pieces(pattern, left.shape[1]):
                features = F.leaky_relu_(_sums_at(left, right, pattern, entries), slope)
                out[head, entries] = features @ vectors[head]
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Pattern, float], output: Tensor) -> None:
        *tensors, ctx.pattern, ctx.slope = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        inputs: tuple[Tensor, ...] = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        source, target, vectors = (torch.zeros_like(x) for x in inputs)
        parts = [x.chunk(len(vectors), 1) for x in (*inputs[:2], source, target)]
        for head, (left, right, to_left, to_right) in enumerate(zip(*parts, strict=True)):
            for entries in _pieces(pattern, left.shape[1]):
                features, own = _sums_at(left, right, pattern, entries), grad[head, entries]
                slopes = (features > 0).to(features.dtype).mul_(1 - ctx.slope).add_(ctx.slope)
                vectors[head] += own @ features.mul_(slopes)
                slopes.mul_(own.unsqueeze(1)).mul_(inputs[2][head])
                to_left.index_add_(0, pattern.col[entries], slopes)
                to_right.index_add_(0, pattern.row[entries], slopes)
        return source, target, vectors, None, None


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


def _softmax(scores: Tensor, pattern: Pattern) -> Tensor:
    row = pattern.row
    peak = scores.new_full((len(scores), pattern.shape[0]), -torch.inf)
    peak.scatter_reduce_(1, row.long().expand_as(scores), scores, "amax")
    out = (scores - peak.index_select(1, row)).exp_()
    return out.div_(_row_sums(pattern, out).index_select(1, row))


def _softmax_gradient(grad: Tensor, out: Tensor, pattern: Pattern) -> Tensor:
    grad = grad * out
    return grad.addcmul_(out, _row_sums(pattern, grad).index_select(1, pattern.row), value=-1)


def _pieces(pattern: Pattern, width: int) -> Iterator[slice]:
    """Yield consecutive entries whose ``width`` features take a few megabytes."""
    size = max(PIECE // width, 1)
    return (slice(start, min(start + size, pattern.nnz)) for start in range(0, pattern.nnz, size))


def _sums_at(source: Tensor, target: Tensor, pattern: Pattern, entries: slice) -> Tensor:
    """Return source[j] + target[i] at some entries (i, j): [n, d]."""
    return source.index_select(0, pattern.col[entries]).add_(target.index_select(0, pattern.row[entries]))


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
