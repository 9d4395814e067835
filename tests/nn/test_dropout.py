import pytest
import torch

from gistgnn.nn.dropout import dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9])
def test_rate_and_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 501, dtype=dtype, requires_grad=True)
    out = dropout(x, p, training=True)
    assert out.dtype == dtype
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=0.005)
    assert out.max().item() == pytest.approx(1 / (1 - p), rel=1e-3)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, out)


def test_without_dropout_x_is_returned() -> None:
    x = torch.ones(3, 2)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_odd_sizes_and_rates_near_one() -> None:
    assert dropout(torch.ones(3), 1 - 1e-9, training=True).isfinite().all()
    assert dropout(torch.ones(0, 3), 0.5, training=True).shape == (0, 3)
