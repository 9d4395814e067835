"""Kernels: closed forms against samples, finite kernels against the limit."""

import math

import pytest
import torch

from gistgnn.theory import exponent, make_gist, measure_kernel_distance, ring, train_round
from gistgnn.theory.problem import gram, kernel, limit_gram, output_gram, secant_kernel

SAMPLES = 10**6


def test_closed_forms_are_the_expectations_over_a_million_neurons() -> None:
    x_hat, m = ring(5, 4, 1).x_hat, 3
    x_hat[4] = -2.0 * x_hat[0]  # antiparallel: never active together
    z = x_hat @ torch.randn(4, SAMPLES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    H, K = limit_gram(x_hat, m), output_gram(x_hat)
    off = []
    for i in range(5):
        for j in range(i + 1):
            both = ((z[i] >= 0) & (z[j] >= 0)).double() * (x_hat[i] @ x_hat[j]) / m
            product = z[i].relu() * z[j].relu()
            for values, expected in ((both, H[i, j]), (product, K[i, j])):
                error = values.std() / math.sqrt(SAMPLES)
                assert abs(values.mean() - expected) <= 3 * error + 1e-15
                off.append(abs(values.mean() - expected) / error if error else torch.tensor(0.0))
    assert max(off) > 0.5  # the standard error is not so wide that anything would pass


def test_the_diagonal_and_parallel_rows_are_exact() -> None:
    x_hat = torch.tensor([[3.0, 4.0], [6.0, 8.0], [-3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[25, 50, 0, 0], [50, 100, 0, 0], [0, 0, 25, 0], [0, 0, 0, 0]]).double() / 2
    torch.testing.assert_close(limit_gram(x_hat, 1), expected, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(output_gram(x_hat), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("m", [1, 4])
def test_finite_kernels_converge_with_the_root_of_the_width(m: int) -> None:
    p, widths = ring(8, 5), [64, 256, 1024, 4096]
    assert abs(exponent(widths, [measure_kernel_distance(p, d_1, m, 60) for d_1 in widths]) + 0.5) <= 0.1


def test_kernels_of_the_sub_gcns_add_up_and_do_not_have_the_papers_scale() -> None:
    p, m, d_1 = ring(8, 5), 3, 600
    theta = torch.randn(p.d, d_1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = [block for (block,) in make_gist(p, d_1, m).blocks(0)]
    parts = sum(kernel(p, theta[:, block], d_1) for block in blocks)
    torch.testing.assert_close(parts, kernel(p, theta, d_1), rtol=1e-12, atol=1e-14)
    limit = limit_gram(p.x_hat, m)
    assert (gram(p.x_hat, theta[:, blocks[0]], d_1) - limit / d_1).norm() > 0.9 * limit.norm()


def test_a_step_changes_the_output_by_its_secant_kernel_exactly() -> None:
    p, m, d_1, eta = ring(8, 5), 2, 64, 0.3
    trace = train_round(make_gist(p, d_1, m), p, 3, eta)
    for outputs, weights in zip(trace.outputs, trace.weights, strict=True):
        for k in range(3):
            G = secant_kernel(p, weights[k], weights[k + 1], d_1)
            torch.testing.assert_close(outputs[k + 1] - outputs[k], eta * G @ (p.y - outputs[k]))
        # without a step it is the kernel of the weights
        torch.testing.assert_close(secant_kernel(p, weights[0], weights[0], d_1), kernel(p, weights[0], d_1))
