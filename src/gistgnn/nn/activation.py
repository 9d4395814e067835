"""Norm, ReLU and dropout of a hidden layer, in few passes over its features and with cheap draws on the CPU."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Activation(NamedTuple):
    """Layer norm without parameters, ReLU and dropout as one step.

    The gradient needs no mask: where the result is 0, so is the gradient.
    """

    eps: float | None  # of the layer norm; None: there is no norm
    dropped: int  # of 2^16 draws

    def forward(self, x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """Write the result for ``x``: [..., N, d] to ``out``; return the mean and 1 / deviation of rows, if normed."""
        if self.eps is None:
            y, mean, rstd = torch.mul(x, scale_of(self.dropped)), x.new_empty(0), x.new_empty(0)
        else:
            y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], self._scales(x), None, self.eps)
        if self.dropped:
            torch.mul(y.clamp_min_(0), draw_kept(y, self.dropped), out=out)
        else:
            torch.clamp_min(y, 0, out=out)
        return mean, rstd

    def backward(self, grad: Tensor, x: Tensor, out: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        """Return the gradient of ``x``. Without a norm it does not depend on ``x``."""
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        if self.eps is None:
            return grad * scale_of(self.dropped)
        shape, scales, which = x.shape[-1:], self._scales(out), [True, False, False]  # none of a weight and a bias
        given: Tensor = torch.ops.aten.native_layer_norm_backward(grad, x, shape, mean, rstd, scales, None, which)[0]
        return given

    def _scales(self, x: Tensor) -> Tensor:
        """Return dropout's scale as the weight of a layer norm: [d]. torch is slower without a weight."""
        return x.new_full(x.shape[-1:], scale_of(self.dropped))


def activation_of(norm: nn.Module, p: float, training: bool) -> Activation | None:
    """Return the norm, ReLU and dropout with probability ``p`` as one step; None: the norm is of another kind."""
    dropped = rounded(p) if training else 0
    if type(norm) is nn.LayerNorm and norm.weight is None:
        return Activation(norm.eps, dropped)
    return Activation(None, dropped) if isinstance(norm, nn.Identity) else None


def activate(norm: nn.Module, x: Tensor, p: float = 0.0, training: bool = False) -> Tensor:
    """Apply norm, ReLU, and in training dropout with probability ``p`` to a hidden layer's output ``x``: [N, d]."""
    activation = activation_of(norm, p, training)
    if activation is None:
        activation, x = Activation(None, rounded(p) if training else 0), norm(x)
    if x.device.type != "cpu" or activation == (None, 0):
        x = F.relu(x if activation.eps is None else norm(x), inplace=True)
        return F.dropout(x, p) if training and p and x.device.type != "cpu" else x
    out: Tensor = _Activate.apply(x, activation)[0]
    return out


class _Activate(Function):
    """An `Activation` of ``x``: [..., N, d]."""

    @staticmethod
    def forward(x: Tensor, activation: Activation) -> tuple[Tensor, Tensor, Tensor]:
        out = torch.empty_like(x)
        return out, *activation.forward(x, out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Activation], output: tuple[Tensor, ...]) -> None:
        x, ctx.activation = inputs
        ctx.save_for_backward(x if ctx.activation.eps is not None else output[0], *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, None]:
        if grad is None:
            return None, None
        return ctx.activation.backward(grad, *ctx.saved_tensors), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, activation: Activation) -> tuple[Any, Any]:
        return _Activate.apply(x.movedim(in_dims[0], 0), activation), (0, 0, 0)
