"""GraphSAGE's linear layer, and norm, ReLU and dropout, equal the plain operations, to the second
order too.
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
    shapes = (d_out, 2 * d_in), (d_out,), (N, d_in)
    return [
        torch.randn(*first, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes
    ]


def plain(weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    return F.linear(torch.cat([h, MEAN @ h], dim=1), weight, bias)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dims", [(None, None, None), (0, 0, 0), (0, 0, None), (1, 1, 2)])
def test_it_is_the_product_of_the_joined_inputs(
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
def test_gradients_within_vmap(sizes: tuple[int, int]) -> None:
    def by(function: Callable[..., Tensor]) -> Tensor:
        each = grad(lambda *tensors: function(*tensors).relu().square().sum(), argnums=2)
        found: Tensor = vmap(each)(*inputs(*sizes, K))
        return found

    torch.testing.assert_close(by(lambda *tensors: linear(*tensors, MEAN)), by(plain))


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(4, elementwise_affine=False), nn.Identity()], ids=["layer", "none"]
)
def test_norm_and_relu_are_those_of_torch(norm: nn.Module) -> None:
    x = inputs(4, 2)[2]
    found = activate(norm, x * 1.0)
    expected = F.relu(norm(x))
    torch.testing.assert_close(found, expected)
    up = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, up), torch.autograd.grad(expected, x, up)
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
        each = vmap(
            lambda one: activate(norm, one, p, training=True), in_dims=dim, randomness="different"
        )
        out = each(x.movedim(0, dim))
    full = F.relu(norm(x))
    kept = out != 0
    positive = full > 0
    assert ((kept & positive).sum() / positive.sum()).item() == pytest.approx(1 - p, abs=0.02)
    assert not torch.equal(kept[0] | ~positive[1], kept[1] | ~positive[0])
    expected = full * kept / (1 - p)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=0)
    up = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, x, up)
    (given,) = torch.autograd.grad(expected, x, up)
    torch.testing.assert_close(found, given, rtol=1e-4, atol=1e-6)


def test_odd_sizes_and_rates_and_no_training() -> None:
    assert activate(nn.Identity(), torch.ones(3), 1 - 1e-9, training=True).isfinite().all()
    assert activate(nn.Identity(), torch.ones(0, 3), 0.5, training=True).shape == (0, 3)
    x = torch.randn(5, 4)
    torch.testing.assert_close(activate(nn.Identity(), x.clone(), 0.5, training=False), F.relu(x))


@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_equals_torch(members: tuple[int, ...], weighted: bool) -> None:
    torch.manual_seed(0)
    logits = (20 * torch.randn(*members, 6, 4, dtype=torch.float64)).requires_grad_()
    targets = torch.tensor([3, 0, 1, 1, 2, 0])
    weights = (
        torch.rand(6, dtype=torch.float64)
        if weighted
        else torch.full((6,), 1 / 6, dtype=torch.float64)
    )
    found = cross_entropy(logits, targets, weights if weighted else None)
    each = F.cross_entropy(
        logits.movedim(-1, 1) if members else logits, targets.expand(*members, 6), reduction="none"
    )
    expected = each @ weights
    torch.testing.assert_close(found, expected)
    up = torch.rand_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, logits, up), torch.autograd.grad(expected, logits, up)
    )
