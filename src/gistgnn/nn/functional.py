"""The dense operations of a training step, with gradients of few passes over the features."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gistgnn.nn.sparse import Function, Product, SparseMatrix, add_product

_DRAWS = 2**16  # equally likely values of the random number that decides about an element
_ROWS = 1000  # of hidden features that stay in the processor's cache


def linear(weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
    """Return H Wᵀ + b, or with a matrix [H, A H] Wᵀ + b: [N, d_out].

    For the columns V of W that multiply A H it computes (A H) Vᵀ or A (H Vᵀ), whichever is cheaper.

    Args:
        weight: W, [d_out, d], or [d_out, 2d] with a matrix.
        bias: b, [d_out].
        h: H, [N, d], or [C, d] with a matrix; its first N rows are those of the N outputs.
        matrix: A, [N, C]. It is only for a weight of which `is_one_function` is true.
    """
    if matrix is None and not is_one_function(weight):
        return F.linear(h, weight, bias)
    return _Linear.apply(weight, bias, h, matrix)[0]


def is_one_function(weight: Tensor) -> bool:
    """Tell whether the products of a weight can be one function with a gradient of its own.

    They cannot under autocast, where torch chooses the types.
    """
    device = weight.device.type
    return not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device))


class _Linear(Function):
    """[H, A H] Wᵀ + b, and A H if it is computed.

    Under vmap all tensors have a first dimension for the sub-GCNs.
    """

    @staticmethod
    def forward(
        weight: Tensor, bias: Tensor, h: Tensor, matrix: SparseMatrix | None
    ) -> tuple[Tensor, Tensor]:
        d = h.shape[-1]
        nodes = h.shape[-2] if matrix is None else matrix.shape[0]
        w = weight.transpose(-1, -2)
        b = bias.unsqueeze(-2).expand(*bias.shape[:-1], nodes, bias.shape[-1])
        multiply_and_add = torch.addmm if h.dim() == 2 else torch.baddbmm
        out = multiply_and_add(b, h[..., :nodes, :], w[..., :d, :])
        if matrix is None:
            return out, h.new_empty(0)
        if _projects(weight, h):
            add_product(matrix, h @ w[..., d:, :], out, beta=1)
            return out, h.new_empty(0)
        a = Product.apply(matrix, h)
        return _add_dense_product(out, a, w[..., d:, :]), a

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
        weight, h, a = ctx.saved_tensors
        matrix = ctx.matrix
        needs_h = ctx.needs_input_grad[2]
        d = h.shape[-1]
        transposed = grad.transpose(-1, -2)
        weight_of_node = weight[..., :d]
        weight_of_neighbours = weight[..., d:]
        for_weight = [transposed @ h[..., : grad.shape[-2], :]]
        for_bias = grad.sum(dim=-2)
        if matrix is None:
            return for_weight[0], for_bias, grad @ weight_of_node if needs_h else None, None
        if _projects(weight, h):
            back = Product.apply(matrix.t(), grad)
            for_weight.append(back.transpose(-1, -2) @ h)
            for_h = back @ weight_of_neighbours if needs_h else None
        else:
            # A gradient of the second order depends on H through A H.
            for_weight.append(
                transposed @ (Product.apply(matrix, h) if torch.is_grad_enabled() else a)
            )
            for_h = Product.apply(matrix.t(), grad @ weight_of_neighbours) if needs_h else None
        if for_h is not None:
            target = for_h[..., : grad.shape[-2], :]
            if torch.is_grad_enabled():  # perhaps within vmap, which has no rule for the other way
                target.add_(grad @ weight_of_node)
            else:
                _add_dense_product(target, grad, weight_of_node)
        return torch.cat(for_weight, dim=-1), for_bias, for_h, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        weight: Tensor,
        bias: Tensor,
        h: Tensor,
        matrix: SparseMatrix | None,
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


def _add_dense_product(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add A B to C in place, for matrices or stacks of them; return C."""
    if a.dim() == 3 and a.device.type == "cuda":
        return c.baddbmm_(a, b)
    triples = zip(c, a, b, strict=True) if a.dim() == 3 else [(c, a, b)]
    for target, left, right in triples:
        target.addmm_(left, right)  # on the CPU baddbmm_ copies C onto itself
    return c


def dropped_draws(p: float) -> int:
    """Return how many of 2^16 draws are dropped, for a probability ``p``; fewer than all."""
    return min(round(p * _DRAWS), _DRAWS - 1)


def scale_of(dropped: int) -> float:
    """Return the factor of the elements that stay, 1 / (1 − p) for the rounded p."""
    return _DRAWS / (_DRAWS - dropped)


def draw_kept(x: Tensor, dropped: int) -> Tensor:
    """Draw 1, or 0 with probability ``dropped`` / 2^16, like ``x``."""
    if x.device.type != "cpu":
        return torch.empty_like(x).bernoulli_(1 / scale_of(dropped))
    # One slow 64-bit draw serves four elements.
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)
    return torch.ge(draws, dropped - _DRAWS // 2, out=torch.empty(x.shape, dtype=x.dtype))


class WholeNorm(nn.Module):
    """Scales a matrix [N, d] to mean 0 and deviation 1 over all entries, as the authors' GCN."""

    def forward(self, h: Tensor) -> Tensor:
        return F.layer_norm(h, h.shape)


def activate(
    norm: nn.Module,
    x: Tensor,
    p: float = 0.0,
    training: bool = False,
    activation: Literal["relu", "elu"] = "relu",
    *,
    overwrite: bool = True,
) -> Tensor:
    """Apply norm, activation and dropout to a hidden layer's output ``x``: [N, d].

    Dropout, with probability ``p``, is for training alone. A `WholeNorm` comes after the
    activation, as in the authors' code. ``x`` is overwritten where that saves time, if nothing else
    needs it (``overwrite``).
    """
    if activation != "relu" or isinstance(norm, WholeNorm):
        function = F.relu if activation == "relu" else F.elu
        x = norm(function(x)) if isinstance(norm, WholeNorm) else function(norm(x))
        return F.dropout(x, p, training)
    # A layer norm without parameters becomes one function with the rest.
    eps = norm.eps if type(norm) is nn.LayerNorm and norm.weight is None else None
    if x.device.type != "cpu":
        x = F.relu(norm(x), inplace=overwrite or eps is not None)
        return F.dropout(x, p) if training and p else x
    dropped = dropped_draws(p) if training else 0
    if eps is None:
        x = norm(x)
        return _Activate.apply(x, None, dropped)[0] if dropped else F.relu(x, inplace=overwrite)
    if dropped or torch.is_grad_enabled():
        return _Activate.apply(x, eps, dropped)[0]
    x = x if overwrite else x.clone()
    for rows in x.split(_ROWS):  # in place, in an evaluation
        normalised, _, _ = torch.native_layer_norm(rows, x.shape[-1:], _scales(x, 0), None, eps)
        rows.copy_(normalised).clamp_min_(0)
    return x


class _Activate(Function):
    """Layer norm (unless ``eps`` is None), ReLU and dropout of [..., N, d].

    Where the result is 0, so is the gradient.
    """

    @staticmethod
    def forward(x: Tensor, eps: float | None, dropped: int) -> tuple[Tensor, Tensor, Tensor]:
        out = torch.empty_like(x)
        if eps is None:
            y = torch.mul(x, scale_of(dropped))
            mean = x.new_empty(0)
            rstd = x.new_empty(0)
        else:
            y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], _scales(x, dropped), None, eps)
        if dropped:
            torch.mul(y.clamp_min_(0), draw_kept(y, dropped), out=out)
        else:
            torch.clamp_min(y, 0, out=out)
        return out, mean, rstd

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, float | None, int], output: tuple[Tensor, ...]
    ) -> None:
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
        scales = _scales(out, ctx.dropped)
        needs_gradient = [True, False, False]  # the gradient of x, and none of a weight and a bias
        native = torch.ops.aten.native_layer_norm_backward
        return (
            native(grad, x, x.shape[-1:], mean, rstd, scales, None, needs_gradient)[0],
            None,
            None,
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None, None], x: Tensor, eps: float | None, dropped: int
    ) -> tuple[Any, Any]:
        return _Activate.apply(x.movedim(in_dims[0], 0), eps, dropped), (0, 0, 0)


def _scales(x: Tensor, dropped: int) -> Tensor:
    """Return dropout's scale as the weight of a layer norm, [d]; without one torch is slower."""
    return x.new_full(x.shape[-1:], scale_of(dropped))


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows ``index``, [n], of ``x``, [..., N, C].

    That is ``x`` itself if these are all of its rows in order.
    """
    size = x.shape[-2]
    # A GPU would have to wait for the comparison.
    if len(index) == size and index.device.type == "cpu" and torch.equal(index, torch.arange(size)):
        return x
    return x.index_select(-2, index)


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean over the nodes, or the weighted sum, of the cross-entropy.

    The logits are [n, C]; those of m sub-GCNs, [m, n, C], give m values.
    """
    if weights is None:
        weights = logits.new_full(targets.shape, 1 / max(len(targets), 1))
    return _CrossEntropy.apply(logits, targets.expand(logits.shape[:-1]).unsqueeze(-1), weights)


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
