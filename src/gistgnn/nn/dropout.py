"""Draws for dropout that are cheap beside a narrow layer, on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

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
