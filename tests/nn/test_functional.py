"""Functions of gistgnn.nn equal the plain operations, to the second order too.

They are GraphSAGE's linear layer; norm, ReLU and dropout in one; and the cross-entropy.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap
from torch.nn import functional as F

from gistgnn.nn import Adjacency
from gistgnn.nn.functional import activate, cross_entropy, linear

from .strategies import K, agree, random_graph

N = 6
MEAN = Adjacency(random_graph(N, 15, 1), N, torch.float64).mean
SIZES = {"aggregated first": (2, 4), "projected first": (4, 2)}  # d_in, d_out


def inputs(d_in: int, d_out: int, *first: int) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = ((d_out, 2 * d_in), (d_out,), (N, d_in))
    return [
        torch.randn(*first, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes
    ]


def plain(weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return F.linear(torch.cat([h, MEAN @ h], dim=1), weight, bias)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dims", [(None, None, None), (0, 0, 0), (0, 0, None), (1, 1, 2)])
def test_linear_is_the_product_of_the_joined_inputs(
    sizes: tuple[int, int], dims: tuple[int | None, ...]
) -> None:
    d_in, d_out = sizes
    agree(
        lambda *tensors: linear(*tensors, MEAN),
        plain,
        [(d_out, 2 * d_in), (d_out,), (N, d_in)],
        dims,
    )
    assert gradgradcheck(lambda *tensors: linear(*tensors, MEAN), inputs(*sizes))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_gradients_of_linear_within_vmap_are_the_plain_ones(sizes: tuple[int, int]) -> None:
    def by(function: Callable[..., Tensor]) -> Tensor:
        gradient_of_h = grad(lambda *tensors: function(*tensors).relu().square().sum(), argnums=2)
        gradients: Tensor = vmap(gradient_of_h)(*inputs(*sizes, K))
        return gradients

    torch.testing.assert_close(by(lambda *tensors: linear(*tensors, MEAN)), by(plain))


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(4, elementwise_affine=False), nn.Identity()], ids=["layer", "none"]
)
def test_activate_is_norm_and_relu_of_torch(norm: nn.Module) -> None:
    x = inputs(4, 2)[2]
    actual = activate(norm, x * 1.0)
    expected = F.relu(norm(x))
    torch.testing.assert_close(actual, expected)
    up = torch.randn_like(actual)
    torch.testing.assert_close(
        torch.autograd.grad(actual, x, up), torch.autograd.grad(expected, x, up)
    )
    assert gradcheck(lambda x: activate(norm, x * 1.0), x)
    assert gradgradcheck(lambda x: activate(norm, x * 1.0), x)


@pytest.mark.parametrize("dim", [None, 0, 1, 2], ids=["alone", "vmap 0", "vmap 1", "vmap 2"])
@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm(50, elementwise_affine=False), nn.LayerNorm(50), nn.Identity()],
    ids=["layer", "affine", "none"],
)
def test_dropout_follows_norm_and_relu(norm: nn.Module, dim: int | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(K, 40, 50, dtype=torch.float64, requires_grad=True)
    p = 0.3
    norm = norm.double()
    if dim is None:
        out = activate(norm, x, p, training=True)
    else:
        activate_stacked = vmap(
            lambda one: activate(norm, one, p, training=True), in_dims=dim, randomness="different"
        )
        out = activate_stacked(x.movedim(0, dim))
    full = F.relu(norm(x))
    mask = out != 0
    positive = full > 0
    assert ((mask & positive).sum() / positive.sum()).item() == pytest.approx(1 - p, abs=0.02)
    assert not torch.equal(mask[0] | ~positive[1], mask[1] | ~positive[0])
    expected = full * mask / (1 - p)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=0)
    up = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, up)
    (expected_gradient,) = torch.autograd.grad(expected, x, up)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-6)


def test_activate_takes_odd_sizes_and_rates_and_drops_in_training_alone() -> None:
    assert activate(nn.Identity(), torch.ones(3), 1 - 1e-9, training=True).isfinite().all()
    assert activate(nn.Identity(), torch.ones(0, 3), 0.5, training=True).shape == (0, 3)
    x = torch.randn(5, 4)
    torch.testing.assert_close(activate(nn.Identity(), x.clone(), 0.5, training=False), F.relu(x))


@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_that_of_torch(members: tuple[int, ...], weighted: bool) -> None:
    torch.manual_seed(0)
    logits = (20 * torch.randn(*members, 6, 4, dtype=torch.float64)).requires_grad_()
    targets = torch.tensor([3, 0, 1, 1, 2, 0])
    weights = torch.full((6,), 1 / 6, dtype=torch.float64)
    if weighted:
        weights = torch.rand(6, dtype=torch.float64)
    actual = cross_entropy(logits, targets, weights if weighted else None)
    losses = F.cross_entropy(
        logits.movedim(-1, 1) if members else logits, targets.expand(*members, 6), reduction="none"
    )
    expected = losses @ weights
    torch.testing.assert_close(actual, expected)
    up = torch.rand_like(actual)
    torch.testing.assert_close(
        torch.autograd.grad(actual, logits, up), torch.autograd.grad(expected, logits, up)
    )
