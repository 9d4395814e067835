"""Attention over a graph's edges, without a tensor [entries, heads, channels]."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gistgnn.graphs.csr import CSR, index_dtype
from gistgnn.nn.functional import draw_kept, dropped_draws, scale_of
from gistgnn.nn.sparse import Function
from gistgnn.utils.tensors import row_pieces

SLOPE = 0.2  # of the scores' LeakyReLU, as published
# Numbers of the features of entries that are in memory at once: a few fit into a processor's cache.
PIECE = 2**20
# Entries of all heads that one product sums: more gain nothing, and each has 16 bytes of indices.
ENTRIES_PER_PRODUCT = 2**22
# Up to this size of scores exp needs no shift: exp(±40), and sums and quotients of them, are far
# within float32.
LARGEST_SCORE = 40.0
TINY = 1e-30  # below every denominator of a row with entries


def edge_scores(source: Tensor, target: Tensor, pattern: CSR, slope: float) -> Tensor:
    """Return LeakyReLU(source[j] + target[i]) at every entry (i, j).

    Takes [heads, C] and [heads, R]; returns [heads, nnz].
    """
    scores = (_to_float(source), _to_float(target))
    return _all_heads(_Scores, scores, pattern, slope, _heads_per_product(pattern))


def dynamic_scores(
    source: Tensor, target: Tensor, vectors: Tensor, pattern: CSR, slope: float
) -> Tensor:
    """Return ⟨a, LeakyReLU(source[j] + target[i])⟩ at every entry (i, j): [heads, nnz].

    Each a is a row of ``vectors``. Features are [·, heads·d].
    """
    return _Dynamic.apply(_to_float(source), _to_float(target), _to_float(vectors), pattern, slope)


def scores_of_rows(sources: Tensor, targets: Tensor, pattern: CSR, slope: float) -> Tensor:
    """Return what `edge_scores` returns, of scores that are a row for each node.

    Takes [C, heads] and [R, heads]; returns [heads, nnz]. A row of a mapped file is read for each
    entry, and nothing else.
    """
    scores = sources.index_select(0, pattern.col).add_(targets.index_select(0, pattern.row))
    return F.leaky_relu_(scores, slope).t().contiguous()


def attend(
    features: Tensor, scores: Tensor, pattern: CSR, dropout: float = 0.0, *, in_place: bool = False
) -> Tensor:
    """Sum every head's features over each row's entries.

    They are weighted by the softmax of the head's scores in the row.

    Args:
        features: [C, heads·d].
        scores: [heads, nnz].
        pattern: the entries, [R, C].
        dropout: of the weights.
        in_place: read the features where they are, one head after the other, without a copy of all
            C rows. This is faster where the rows have few entries together.

    Returns:
        [R, heads·d], differentiable once; empty rows give 0.
    """
    by_head = (
        _to_float(features)
        .unflatten(1, (len(scores), features.shape[1] // len(scores)))
        .transpose(0, 1)
    )
    heads_at_once = 1 if in_place else _heads_per_product(pattern)
    if 1 < len(scores) <= heads_at_once:
        by_head = by_head.contiguous()  # otherwise a product reads columns of a larger tensor
    out = _all_heads(_Attend, (by_head, _to_float(scores)), pattern, dropout, heads_at_once)
    return out.transpose(0, 1).reshape(pattern.shape[0], features.shape[1])


def _heads_per_product(pattern: CSR) -> int:
    """Return how many heads one product may sum."""
    return max(ENTRIES_PER_PRODUCT // max(pattern.num_edges, 1), 1)


def _all_heads(
    function: "type[_OfHeads]",
    tensors: tuple[Tensor, ...],
    pattern: CSR,
    setting: float,
    heads_at_once: int,
) -> Tensor:
    """Apply a function of tensors [heads, ...] to some heads at a time.

    ``setting`` is the function's last argument.
    """
    if heads_at_once >= len(tensors[0]):
        output: Tensor = function.apply(*tensors, pattern, setting)[0]
        return output
    groups = zip(*(x.split(heads_at_once) for x in tensors), strict=True)
    return torch.cat([function.apply(*group, pattern, setting)[0] for group in groups])


def _to_float(x: Tensor) -> Tensor:
    """Convert autocast's bfloat16 to float32: the CPU has no sparse product in bfloat16."""
    return x.float() if x.dtype == torch.bfloat16 else x


class _OfHeads(Function):
    """A function of two tensors [heads, ...], which treats every head alone.

    So vmap applies it to the heads of all sub-GCNs at once.
    """

    @classmethod
    def vmap(
        cls,
        info: Any,
        in_dims: tuple[int | None, ...],
        a: Tensor,
        b: Tensor,
        pattern: CSR,
        setting: float,
    ) -> tuple[tuple[Tensor], tuple[int]]:
        first, second = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((a, b), in_dims[:2], strict=True)
        )
        heads = first.shape[1]
        tensors = (first.flatten(0, 1), second.flatten(0, 1))
        out = _all_heads(cls, tensors, pattern, setting, _heads_per_product(pattern))
        return (out.unflatten(0, (info.batch_size, heads)),), (0,)


class _Scores(_OfHeads):
    """Saves only its result for the backward pass: LeakyReLU keeps the sign."""

    @staticmethod
    def forward(source: Tensor, target: Tensor, pattern: CSR, slope: float) -> tuple[Tensor]:
        out = source.index_select(1, pattern.col).add_(target.index_select(1, pattern.row))
        return (F.leaky_relu_(out, slope),)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, CSR, float], output: tuple[Tensor]
    ) -> None:
        ctx.pattern, ctx.slope = inputs[2:]
        ctx.save_for_backward(*output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (out,) = ctx.saved_tensors
        grad = torch.ops.aten.leaky_relu_backward(grad, out, ctx.slope, True)
        transposed, order = ctx.pattern.transpose
        return (
            _row_sums(transposed, grad.index_select(1, order)),
            _row_sums(ctx.pattern, grad),
            None,
            None,
        )


class _Dynamic(Function):
    """GATv2's scores: [heads, nnz].

    The features of entries exist for one head and some entries at a time.
    """

    @classmethod
    def vmap(
        cls, info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[Tensor, int]:
        members = [
            [
                x if dim is None else x.select(dim, i)
                for x, dim in zip(arguments, in_dims, strict=True)
            ]
            for i in range(info.batch_size)
        ]
        return torch.stack([cls.apply(*member) for member in members]), 0

    @staticmethod
    def forward(
        source: Tensor, target: Tensor, vectors: Tensor, pattern: CSR, slope: float
    ) -> Tensor:
        out = source.new_empty(len(vectors), pattern.num_edges)
        heads = len(vectors)
        for head, (left, right) in enumerate(
            zip(source.chunk(heads, 1), target.chunk(heads, 1), strict=True)
        ):
            for entries in row_pieces(pattern.num_edges, left.shape[1], PIECE):
                features = F.leaky_relu_(_sums_at(left, right, pattern, entries), slope)
                out[head, entries] = features @ vectors[head]
        return out

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, CSR, float], output: Tensor
    ) -> None:
        *tensors, ctx.pattern, ctx.slope = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        inputs: tuple[Tensor, ...] = ctx.saved_tensors
        pattern: CSR = ctx.pattern
        source, target, vectors = (torch.zeros_like(x) for x in inputs)
        parts = [x.chunk(len(vectors), 1) for x in (*inputs[:2], source, target)]
        for head, (left, right, to_left, to_right) in enumerate(zip(*parts, strict=True)):
            for entries in row_pieces(pattern.num_edges, left.shape[1], PIECE):
                features = _sums_at(left, right, pattern, entries)
                grad_of_entries = grad[head, entries]
                slopes = (features > 0).to(features.dtype).mul_(1 - ctx.slope).add_(ctx.slope)
                vectors[head] += grad_of_entries @ features.mul_(slopes)
                slopes.mul_(grad_of_entries.unsqueeze(1)).mul_(inputs[2][head])
                to_left.index_add_(0, pattern.col[entries], slopes)
                to_right.index_add_(0, pattern.row[entries], slopes)
        return source, target, vectors, None, None


class _Attend(_OfHeads):
    """Softmax, dropout and weighted sum of all heads.

    Takes [heads, C, d] and [heads, nnz]; returns [heads, R, d].
    """

    @staticmethod
    def forward(
        features: Tensor, scores: Tensor, pattern: CSR, dropout: float
    ) -> tuple[Tensor, ...]:
        weights = _exponentials(scores, pattern)
        scale = _row_sums(pattern, weights).clamp_(min=TINY).reciprocal_().unsqueeze(2)
        used = weights * draw_kept(weights, dropped_draws(dropout)) if dropout else weights
        out = _product(pattern, used, features, scale_of(dropped_draws(dropout))).mul_(scale)
        return out, weights, used, scale

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, CSR, float], output: tuple[Tensor, ...]
    ) -> None:
        features, _, ctx.pattern, ctx.dropout = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # no zeros as the gradients of what only backward needs
        ctx.save_for_backward(features, *output)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, *_: Any
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        if grad is None:
            return None, None, None, None
        features, out, weights, used, scale = ctx.saved_tensors
        pattern: CSR = ctx.pattern
        factor = scale_of(dropped_draws(ctx.dropout))
        grad = torch.mul(grad, scale, out=torch.empty_like(out))
        to_features = to_scores = None
        if ctx.needs_input_grad[0]:
            transposed, order = pattern.transpose
            to_features = _product(transposed, used.index_select(1, order), grad, factor)
        if ctx.needs_input_grad[1]:
            of_outputs = (grad * out).sum(dim=2)
            to_scores = _sampled(pattern, grad, features, factor).mul_(used)
            to_scores.addcmul_(weights, of_outputs.index_select(1, pattern.row), value=-1)
        return to_features, to_scores, None, None


def _exponentials(scores: Tensor, pattern: CSR) -> Tensor:
    """Return exp(scores), of large ones exp(scores − the largest of the row and head).

    They are [heads, nnz].
    """
    # On a GPU reading the extremes would wait for it.
    if scores.device.type == "cpu" and scores.numel():
        low, high = scores.aminmax()
        if bool((low >= -LARGEST_SCORE) & (high <= LARGEST_SCORE)):
            return scores.exp()
    row = pattern.row
    peak = scores.new_full((len(scores), pattern.shape[0]), -torch.inf)
    peak.scatter_reduce_(1, row.long().expand_as(scores), scores, "amax")
    return (scores - peak.index_select(1, row)).exp_()


def _sums_at(source: Tensor, target: Tensor, pattern: CSR, entries: slice) -> Tensor:
    """Return source[j] + target[i] at some entries (i, j): [n, d]."""
    return source.index_select(0, pattern.col[entries]).add_(
        target.index_select(0, pattern.row[entries])
    )


def _on_diagonal(pattern: CSR, count: int) -> CSR:
    """Return copies of a pattern along a diagonal, so that one product serves all heads.

    They are computed once for every ``count``.
    """
    if count == 1:
        return pattern
    computed: dict[int, CSR] = pattern.__dict__.setdefault("_on_diagonal", {})
    if count not in computed:
        shape = (count * pattern.shape[0], count * pattern.shape[1])
        dtype = index_dtype(*shape, count * pattern.num_edges)
        copies = torch.arange(count, dtype=dtype, device=pattern.col.device).unsqueeze(1)
        rowptr = (pattern.rowptr[1:].to(dtype) + copies * pattern.num_edges).view(-1)
        col = (pattern.col.to(dtype) + copies * pattern.shape[1]).view(-1)
        computed[count] = CSR(torch.cat([rowptr.new_zeros(1), rowptr]), col, shape)
    return computed[count]


def _row_sums(pattern: CSR, x: Tensor) -> Tensor:
    """Sum every head's ``x``: [heads, nnz] over each row's entries: [heads, R]."""
    diagonal = _on_diagonal(pattern, len(x))
    return torch.mv(diagonal.with_values(x.view(-1)), x.new_ones(diagonal.shape[1])).view(
        len(x), pattern.shape[0]
    )


def _product(pattern: CSR, value: Tensor, h: Tensor, factor: float) -> Tensor:
    """Multiply every head's matrix with the head's features and a number.

    ``value`` is [heads, nnz], and ``h`` is [heads, C, d].
    """
    diagonal = _on_diagonal(pattern, len(value))
    heads, _, d = h.shape
    out = h.new_empty(diagonal.shape[0], d)
    out.addmm_(
        diagonal.with_values(value.view(-1)), h.reshape(diagonal.shape[1], d), beta=0, alpha=factor
    )
    return out.view(heads, pattern.shape[0], d)


def _sampled(pattern: CSR, left: Tensor, right: Tensor, factor: float) -> Tensor:
    """Return factor · ⟨left[i], right[j]⟩ at the entries (i, j): [heads, nnz].

    Takes [heads, R, d] and [heads, C, d].
    """
    diagonal = _on_diagonal(pattern, len(left))
    out = left.new_zeros(diagonal.num_edges)
    # torch's sampled product takes at most R·C entries; repeated edges of a tiny graph can exceed
    # that.
    for piece, entries in diagonal.pieces(diagonal.shape[0] * diagonal.shape[1]):
        at = piece.with_values(out[entries])
        # In place: otherwise torch copies the pattern as well.
        torch.sparse.sampled_addmm(
            at, left.flatten(0, 1), right.flatten(0, 1).t(), alpha=factor, out=at
        )
    return out.view(len(left), pattern.num_edges)
