import pytest
import torch
from torch import Tensor, nn

from gistgnn.nn.activation import activate


def dropout(x: Tensor, p: float) -> Tensor:
    return activate(nn.Identity(), x, p, training=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9])
def test_rate_and_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 501, dtype=dtype, requires_grad=True)
    out = dropout(x, p)
    assert out.dtype == dtype
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=0.005)
    assert out.max().item() == pytest.approx(1 / (1 - p), rel=1e-3)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, out)


def test_odd_sizes_and_rates_near_one() -> None:
    assert dropout(torch.ones(3), 1 - 1e-9).isfinite().all()
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)
