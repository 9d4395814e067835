"""The cross-entropy of many sub-GCNs at once, in few passes over their logits."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def rows(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows ``index``: [n] of ``x``: [..., N, C]; ``x`` itself if these are all of its rows in order."""
    size = x.shape[-2]
    # A GPU would have to wait for the comparison.
    if len(index) == size and index.device.type == "cpu" and torch.equal(index, torch.arange(size)):
        return x
    return x.index_select(-2, index)


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean over the nodes, or the sum with ``weights``: [n], of their cross-entropies.

    ``logits``: [n, C], or [m, n, C] of m sub-GCNs, whose results are [m]. ``targets``: [n], the classes of the nodes.
    """
    if weights is None:
        weights = logits.new_full(targets.shape, 1 / max(len(targets), 1))
    out: Tensor = _CrossEntropy.apply(logits, targets.expand(logits.shape[:-1]).unsqueeze(-1), weights)
    return out


class _CrossEntropy(torch.autograd.Function):
    """The gradient is made in the place of the logarithms of the probabilities."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        logs = torch.log_softmax(logits, dim=-1)
        ctx.save_for_backward(logs, targets, weights)
        return -(logs.gather(-1, targets).squeeze(-1) @ weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logs, targets, weights = ctx.saved_tensors
        out = logs.exp()
        out.scatter_add_(-1, targets, out.new_full((1,), -1.0).expand(targets.shape))
        return out.mul_((grad.unsqueeze(-1) * weights).unsqueeze(-1)), None, None
