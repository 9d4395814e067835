"""Norm, ReLU and dropout of a hidden layer, in few passes over its features on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.nn.dropout import draw_kept, dropout, rounded, scale_of
from gistgnn.nn.function import Function


def activate(norm: nn.Module, x: Tensor, p: float = 0.0, training: bool = False) -> Tensor:
    """Apply norm, ReLU, and in training dropout with probability ``p`` to a hidden layer's output ``x``: [N, d].

    On the CPU a layer norm without parameters, ReLU and dropout are one function. Its gradient needs no mask: where the
    result is 0, so is the gradient.
    """
    dropped = rounded(p) if training else 0
    plain = type(norm) is nn.LayerNorm and norm.weight is None
    if x.device.type != "cpu" or not (plain or dropped):
        return dropout(F.relu(norm(x), inplace=True), p, training)
    if not plain:
        x = norm(x)
    out: Tensor = _Activation.apply(x, norm.eps if plain else None, dropped)[0]
    return out


class _Activation(Function):
    """Returns the result for ``x``: [..., N, d], and the mean and 1 / deviation of every row if ``eps`` is given."""

    @staticmethod
    def forward(x: Tensor, eps: float | None, dropped: int) -> tuple[Tensor, Tensor, Tensor]:
        if eps is None:
            out, mean, rstd = x * scale_of(dropped), x.new_empty(0), x.new_empty(0)
        else:
            out, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], _scales(x, dropped), None, eps)
        out.clamp_min_(0)
        if dropped:
            out.mul_(draw_kept(out, dropped))
        return out, mean, rstd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | None, int], output: tuple[Tensor, ...]) -> None:
        x, ctx.eps, ctx.dropped = inputs
        ctx.save_for_backward(*output, *([] if ctx.eps is None else [x]))
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None, None]:
        out, mean, rstd, *given = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        if not given:
            return grad * scale_of(ctx.dropped), None, None
        shape, scales = out.shape[-1:], _scales(out, ctx.dropped)
        which = [True, False, False]  # no gradients of a weight and a bias
        grad = torch.ops.aten.native_layer_norm_backward(grad, *given, shape, mean, rstd, scales, None, which)[0]
        return grad, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None, None], x: Tensor, eps: float | None, dropped: int) -> tuple[Any, Any]:
        return _Activation.apply(x.movedim(in_dims[0], 0), eps, dropped), (0, 0, 0)


def _scales(x: Tensor, dropped: int) -> Tensor:
    """Return dropout's scale as the weight of a layer norm: [d]. torch is slower without a weight."""
    return x.new_full(x.shape[-1:], scale_of(dropped))
