import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.partition import Partition
from gistgnn.theory import Problem, complete, ring
from gistgnn.theory.example_problems import in_basis_of_rows
from gistgnn.theory.gram import gram, limit_gram, output_gram
from gistgnn.theory.kernel import kernel, limit_kernel
from gistgnn.theory.measure_training import exponent, measure_kernel_distance
from gistgnn.theory.problem import aggregation
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused
from tests.theory.problems import orthogonal, problem

SAMPLES = 10**6


def test_closed_forms_are_the_expectations_over_a_million_neurons() -> None:
    x_hat, m = problem(n=5, d=4, seed=1).x_hat, 3
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


def finite(p: Problem, m: int, d_1: int, seed: int) -> torch.Tensor:
    """H^(j), j = 0, of Gaussian weights and a categorical mask."""
    theta = torch.randn(p.d, d_1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    block = Partition((d_1,), m, kind="categorical", seed=seed).blocks(0)[0][0]
    return theta[:, block]


@pytest.mark.parametrize("m", [1, 4])
def test_finite_kernels_converge_with_the_root_of_the_width(m: int) -> None:
    p, widths = problem(), [64, 256, 1024, 4096]
    assert abs(exponent(widths, [measure_kernel_distance(p, d_1, m, 60) for d_1 in widths]) + 0.5) <= 0.1


def test_with_the_papers_scale_the_finite_kernels_do_not_converge() -> None:
    p, m, d_1 = problem(), 2, 4096
    printed = limit_gram(p.x_hat, m) / d_1
    assert (gram(p.x_hat, finite(p, m, d_1, 0), d_1) - printed).norm() > 0.9 * limit_gram(p.x_hat, m).norm()


def test_kernels_of_the_sub_gcns_add_up_to_that_of_the_gcn() -> None:
    p, m, d_1 = problem(), 3, 50
    theta = torch.randn(p.d, d_1, dtype=torch.float64)
    blocks = Partition((d_1,), m, kind="categorical").blocks(0)
    parts = sum(kernel(p, theta[:, block], d_1) for (block,) in blocks)
    torch.testing.assert_close(parts, kernel(p, theta, d_1), rtol=1e-12, atol=1e-14)


def test_aggregation_of_a_triangle_and_an_isolated_node() -> None:
    a_bar = aggregation(orthogonal(3).edge_index, 4)
    expected = torch.eye(4, dtype=torch.float64)
    expected[:3, :3] += 0.5 * (1 - torch.eye(3))
    torch.testing.assert_close(a_bar, expected)


def test_a_directed_edge_is_refused() -> None:
    with refused("0 -> 1", "undirected"):
        Problem(torch.eye(3).double(), torch.tensor([[0, 1, 2], [1, 2, 1]]), torch.zeros(3).double())


def test_what_is_no_problem() -> None:
    x, y, edges = torch.eye(3).double(), torch.zeros(3).double(), torch.tensor([[0, 1], [1, 0]])
    with refused("x is [3, 3] torch.float32", "float64"):
        Problem(x.float(), edges, y)
    with refused("y is [3, 1]", "[n] float64"):
        Problem(x, edges, y[:, None])
    with refused("y is [2]", "[3]"):
        Problem(x, edges, y[:2])
    with refused("n is 2", "at least 3"):
        ring(2)


def test_a_complete_graph_s_rows_are_orthogonal_and_its_kernel_is_known() -> None:
    for n in (3, 4, 7):
        p = complete(n)
        assert p.degrees.tolist() == [n - 1] * n
        torch.testing.assert_close(p.x_hat @ p.x_hat.T, torch.eye(n).double() * p.x_hat[0].square().sum())
        ratio = float(p.spectrum[0] / p.spectrum[-1])
        assert ratio == pytest.approx((1 - 1 / (n - 1)) ** 2 / 4)


def test_targets_of_a_graph() -> None:
    graph = tiny_graph()
    p = Problem.from_graph(graph)
    assert p.y.unique().tolist() == [-1.0, 0.0, 1.0]
    assert p.x.dtype == p.y.dtype == torch.float64
    assert p.checksum == Problem.from_graph(tiny_graph()).checksum != Problem(p.x * 2, p.edge_index, p.y).checksum
    with refused("y is [3]", "[24]"):
        Problem.from_graph(graph, torch.zeros(3))
    with refused("give y"):
        Problem.from_graph(tiny_graph(multi_label=True))


@given(st.integers(5, 9), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_a_basis_of_the_rows_of_x_leaves_what_training_depends_on(n: int, d: int, seed: int) -> None:
    p = problem(n, d, seed)
    if seed % 2:
        p = replace(p, x=p.x[torch.arange(n) // 2])  # equal rows: X has not full rank
    same = in_basis_of_rows(p)
    assert same.d == min(n, d)
    torch.testing.assert_close(same.x @ same.x.T, p.x @ p.x.T)
    torch.testing.assert_close(limit_kernel(same, 2), limit_kernel(p, 2))
