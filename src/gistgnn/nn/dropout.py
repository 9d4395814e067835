"""Dropout that is cheap beside a narrow layer, on the CPU too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gistgnn.nn.function import Function

_DRAWS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero every element of ``x`` with probability ``p`` and rescale the others; return ``x`` itself if not training.

    torch draws 64 slow random bits per element on the CPU. Here one 64-bit draw serves four elements: p is rounded to a
    multiple of 2^-16, and the scale is 1 / (1 − rounded p).

    Under ``torch.func.vmap`` every sub-GCN has its own draws. If all of them share ``x``, they share the draws too.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    out: Tensor = _Dropout.apply(x, rounded(p))[0]
    return out


def rounded(p: float) -> int:
    """Return how many of 2^16 draws are dropped; fewer than all."""
    return min(round(p * _DRAWS), _DRAWS - 1)


def scale_of(dropped: int) -> float:
    """Return the factor of the elements that are kept."""
    return _DRAWS / (_DRAWS - dropped)


def draw_kept(x: Tensor, dropped: int) -> Tensor:
    """Draw for every element of ``x`` whether it is kept: 1, or 0 with probability ``dropped`` / 2^16, as a float."""
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)
    return torch.ge(draws, dropped - _DRAWS // 2, out=torch.empty(x.shape, dtype=x.dtype))


class _Dropout(Function):
    """Returns the result and the factors: 0 for ``dropped`` of 2^16 draws, otherwise the scale."""

    @staticmethod
    def forward(x: Tensor, dropped: int) -> tuple[Tensor, Tensor]:
        factors = draw_kept(x, dropped).mul_(scale_of(dropped))
        return x * factors, factors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return grad * factors, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, dropped: int) -> tuple[Any, tuple[int, int]]:
        return _Dropout.apply(x.movedim(in_dims[0], 0), dropped), (0, 0)
