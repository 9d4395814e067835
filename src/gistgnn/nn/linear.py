"""A linear layer of features and of the sums over their neighbours, as one function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gistgnn.nn.function import Function
from gistgnn.nn.sparse import SparseMatrix, product


def linear(weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
    """Return H Wᵀ + b: [N, d_out]; with a matrix [H, A H] Wᵀ + b, for the first N nodes of H.

    It computes (A H) Vᵀ or A (H Vᵀ), whichever is cheaper, for the columns V of W that multiply A H. The inputs are not
    joined, and neither are their gradients added up in a pass of their own.

    Args:
        weight: W, [d_out, d], or [d_out, 2d] with a matrix.
        bias: b, [d_out].
        h: H, [C, d].
        matrix: A, [N, C].
    """
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # it does not convert what a function of our own multiplies
        dtype = torch.get_autocast_dtype(device)
        weight, bias, h = weight.to(dtype), bias.to(dtype), h.to(dtype)
    out: Tensor = _Linear.apply(weight, bias, h, matrix)[0]
    return out


class _Linear(Function):
    """Returns the result, and A H if it is computed. Under vmap all tensors have a first dimension for the sub-GCNs."""

    @staticmethod
    def forward(weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None) -> tuple[Tensor, Tensor]:
        d, w = h.shape[-1], weight.transpose(-1, -2)
        rows = h.shape[-2] if matrix is None else matrix.shape[0]
        b = bias.unsqueeze(-2).expand(*bias.shape[:-1], rows, bias.shape[-1])
        out = _add_product(b, h[..., :rows, :], w[..., :d, :])
        if matrix is None:
            return out, h.new_empty(0)
        if _projects(weight, h):
            product(matrix, h @ w[..., d:, :], out)
            return out, h.new_empty(0)
        a = product(matrix, h)
        return _add_product(out, a, w[..., d:, :], in_place=True), a

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        weight, _, h, ctx.matrix = inputs
        ctx.save_for_backward(weight, h, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        weight, h, a = ctx.saved_tensors
        matrix, d, rows = ctx.matrix, h.shape[-1], grad.shape[-2]
        for_bias, for_h = grad.sum(dim=-2), None
        parts = [grad.transpose(-1, -2) @ h[..., :rows, :]]
        own, other = weight[..., :d], weight[..., d:]
        if matrix is None:
            if ctx.needs_input_grad[2]:
                for_h = grad @ own
        else:
            if _projects(weight, h):
                back = product(matrix.t(), grad)
                parts.append(back.transpose(-1, -2) @ h)
                if ctx.needs_input_grad[2]:
                    for_h = back @ other
            else:
                parts.append(grad.transpose(-1, -2) @ a)
                if ctx.needs_input_grad[2]:
                    for_h = product(matrix.t(), grad @ other)
            if for_h is not None:
                _add_product(for_h[..., :rows, :], grad, own, in_place=True)
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0], for_bias, for_h, None

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


def _add_product(c: Tensor, a: Tensor, b: Tensor, in_place: bool = False) -> Tensor:
    """Return C + A B of matrices, or of stacks of them."""
    if a.dim() == 2:
        return c.addmm_(a, b) if in_place else torch.addmm(c, a, b)
    return c.baddbmm_(a, b) if in_place else torch.baddbmm(c, a, b)
