"""A linear layer of features and of the sums over their neighbours, as one function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gistgnn.nn.function import Function
from gistgnn.nn.sparse import SparseMatrix, add_product, multiply


def linear(weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
    """Return H Wᵀ + b: [N, d_out]; with a matrix [H, A H] Wᵀ + b, for the first N nodes of H.

    It computes (A H) Vᵀ or A (H Vᵀ), whichever is cheaper, for the columns V of W that multiply A H. The inputs are not
    joined, and their gradients are not added up in a pass of their own. All tensors have one type.

    Args:
        weight: W, [d_out, d], or [d_out, 2d] with a matrix.
        bias: b, [d_out].
        h: H, [C, d].
        matrix: A, [N, C]; only for a weight that `fits`.
    """
    if matrix is None and not fits(weight):
        return F.linear(h, weight, bias)
    out: Tensor = _Linear.apply(weight, bias, h, matrix)[0]
    return out


def fits(weight: Tensor) -> bool:
    """Whether the products of a weight can be one function: not under autocast, which chooses types of torch's own."""
    device = weight.device.type
    return not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device))


class _Linear(Function):
    """Returns the result, and A H if it is computed. Under vmap all tensors have a first dimension for the sub-GCNs."""

    @staticmethod
    def forward(weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None) -> tuple[Tensor, Tensor]:
        d, w = h.shape[-1], weight.transpose(-1, -2)
        rows = h.shape[-2] if matrix is None else matrix.shape[0]
        b = bias.unsqueeze(-2).expand(*bias.shape[:-1], rows, bias.shape[-1])
        out = (torch.addmm if h.dim() == 2 else torch.baddbmm)(b, h[..., :rows, :], w[..., :d, :])
        if matrix is None:
            return out, h.new_empty(0)
        if _projects(weight, h):
            add_product(matrix, h @ w[..., d:, :], out, beta=1)
            return out, h.new_empty(0)
        a = multiply(matrix, h)
        return _add_product(out, a, w[..., d:, :]), a

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        weight, _, h, ctx.matrix = inputs
        ctx.save_for_backward(weight, h, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None
        (weight, h, a), matrix, needs_h = ctx.saved_tensors, ctx.matrix, ctx.needs_input_grad[2]
        d, transposed = h.shape[-1], grad.transpose(-1, -2)
        own, other = weight[..., :d], weight[..., d:]
        for_weight, for_bias = [transposed @ h[..., : grad.shape[-2], :]], grad.sum(dim=-2)
        if matrix is None:
            return for_weight[0], for_bias, grad @ own if needs_h else None, None
        if _projects(weight, h):
            back = multiply(matrix.t(), grad)
            for_weight.append(back.transpose(-1, -2) @ h)
            for_h = back @ other if needs_h else None
        else:
            # A gradient of the second order depends on H through A H.
            for_weight.append(transposed @ (multiply(matrix, h) if torch.is_grad_enabled() else a))
            for_h = multiply(matrix.t(), grad @ other) if needs_h else None
        if for_h is not None:
            target = for_h[..., : grad.shape[-2], :]
            if torch.is_grad_enabled():  # perhaps within vmap, which has no rule for the other way
                target.add_(grad @ own)
            else:
                _add_product(target, grad, own)
        return torch.cat(for_weight, dim=-1), for_bias, for_h, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None
    ) -> tuple[Any, Any]:
        weight, bias, h = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((weight, bias, h), in_dims[:3], strict=True)
        )
        out, a = _Linear.apply(weight, bias, h, matrix)
        return (out, a), (0, 0 if a.numel() else None)


def _projects(weight: Tensor, h: Tensor) -> bool:
    """Tell whether A (H Vᵀ) is cheaper than (A H) Vᵀ."""
    return weight.shape[-2] < h.shape[-1]


def _add_product(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add A B to C in place, for matrices or stacks of them; return C."""
    for target, one, other in zip(c, a, b, strict=True) if a.dim() == 3 else ((c, a, b),):
        target.addmm_(one, other)  # baddbmm_ copies C onto itself
    return c
