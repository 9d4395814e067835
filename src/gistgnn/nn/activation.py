"""Norm, ReLU and dropout of a hidden layer, in few passes over its features and with cheap draws on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.nn.function import Function

_DRAWS = 2**16


def rounded(p: float) -> int:
    """Return how many of 2^16 draws are dropped, for a probability ``p``; fewer than all."""
    return min(round(p * _DRAWS), _DRAWS - 1)


def scale_of(dropped: int) -> float:
    """Return the factor of the elements that are kept, 1 / (1 − rounded p)."""
    return _DRAWS / (_DRAWS - dropped)


def draw_kept(x: Tensor, dropped: int) -> Tensor:
    """Draw for every element of ``x`` whether it is kept: 1, or 0 with probability ``dropped`` / 2^16, as a float.

    torch draws 64 slow random bits per element on the CPU. Here one 64-bit draw serves four elements.
    """
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)
    return torch.ge(draws, dropped - _DRAWS // 2, out=torch.empty(x.shape, dtype=x.dtype))


def activate(norm: nn.Module, x: Tensor, p: float = 0.0, training: bool = False) -> Tensor:
    """Apply norm, ReLU, and in training dropout with probability ``p`` to a hidden layer's output ``x``: [N, d]."""
    dropped, eps = rounded(p) if training else 0, None
    if type(norm) is nn.LayerNorm and norm.weight is None:
        eps = norm.eps
    else:
        x = norm(x)
    if x.device.type != "cpu" or (eps is None and not dropped):
        x = F.relu(x if eps is None else norm(x), inplace=True)
        return F.dropout(x, p) if training and p and x.device.type != "cpu" else x
    out: Tensor = _Activate.apply(x, eps, dropped)[0]
    return out


class _Activate(Function):
    """Layer norm without parameters, ReLU and dropout of ``x``: [..., N, d]; an ``eps`` of None means no norm.

    The gradient needs no mask: where the result is 0, so is the gradient. The mean and 1 / deviation of rows are
    results too.
    """

    @staticmethod
    def forward(x: Tensor, eps: float | None, dropped: int) -> tuple[Tensor, Tensor, Tensor]:
        out = torch.empty_like(x)
        if eps is None:
            y, mean, rstd = torch.mul(x, scale_of(dropped)), x.new_empty(0), x.new_empty(0)
        else:
            y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], _scales(x, dropped), None, eps)
        if dropped:
            torch.mul(y.clamp_min_(0), draw_kept(y, dropped), out=out)
        else:
            torch.clamp_min(y, 0, out=out)
        return out, mean, rstd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | None, int], output: tuple[Tensor, ...]) -> None:
        x, ctx.eps, ctx.dropped = inputs
        ctx.save_for_backward(x if ctx.eps is not None else output[0], *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        x, out, mean, rstd = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        if ctx.eps is None:
            return grad * scale_of(ctx.dropped), None, None
        scales, which = _scales(out, ctx.dropped), [True, False, False]  # none of a weight and a bias
        native = torch.ops.aten.native_layer_norm_backward
        return native(grad, x, x.shape[-1:], mean, rstd, scales, None, which)[0], None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None, None], x: Tensor, eps: float | None, dropped: int) -> tuple[Any, Any]:
        return _Activate.apply(x.movedim(in_dims[0], 0), eps, dropped), (0, 0, 0)


def _scales(x: Tensor, dropped: int) -> Tensor:
    """Return dropout's scale as the weight of a layer norm: [d]. torch is slower without a weight."""
    return x.new_full(x.shape[-1:], scale_of(dropped))
