"""Problems, whether the assumptions of the analysis hold on them, and their kernels.

Closed forms are compared with samples.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import theory
from gistgnn.graphs import Graph
from gistgnn.theory.assumptions import degree_balance, nearest_nodes, smallest_angle
from gistgnn.theory.problem import aggregation, gram, kernel, limit_gram, output_gram, secant_kernel
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused


def names_that_fail(p: theory.Problem) -> set[str]:
    return {assumption.name for assumption in theory.check(p, 2) if not assumption.holds}


def test_each_assumption_fails_where_it_has_to() -> None:
    p = theory.ring(8, 5)
    for problem in (p, theory.complete(6), theory.ring(9, 9, jumps=(1,))):
        assert not names_that_fail(problem)
    # An even ring is bipartite.
    assert names_that_fail(theory.ring(8, 8, jumps=(1,))) == {"λ_min(Ā) ≠ 0", "λ_0 > 0"}
    assert names_that_fail(theory.Problem(3.0 * p.x, p.edge_index, p.y)) == {
        "‖x_i‖ ≤ (1 − ε) / 2",
        "‖x̂_i‖ ≤ 1",
    }
    edges = theory.ring(5, 4, jumps=(1,)).edge_index
    isolated = theory.Problem(torch.full((6, 4), 0.01).double(), edges, torch.zeros(6).double())
    assert isolated.degrees.tolist() == [2, 2, 2, 2, 2, 0]
    failed = names_that_fail(isolated)
    assert "balanced degrees" in failed
    assert "λ_min(Ā) ≠ 0" not in failed
    x_hat = p.x_hat.clone() * 0.1
    x_hat[1] = 2.0 * x_hat[0]
    x = torch.linalg.solve(p.a_bar, x_hat)
    assert smallest_angle(x) > 1e-3  # no parallel rows of X, which does not give the property of X̂
    assert {"no parallel x̂_i", "λ_0 > 0"} <= names_that_fail(theory.Problem(x, p.edge_index, p.y))
    x_hat[1] = 0.0
    assert smallest_angle(x_hat) == 0.0


@settings(deadline=None, max_examples=60)
@given(degrees=st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_the_least_epsilon_is_that_of_a_search(degrees: list[int]) -> None:
    epsilon, p = degree_balance(torch.tensor(degrees).double())
    low = min(degrees)
    high = max(degrees)
    assert (1 - epsilon) ** 2 * p <= low * (1 + 1e-12)
    assert high <= (1 + epsilon) ** 2 * p * (1 + 1e-12)
    for other in range(1, high + 2):
        assert max(1 - math.sqrt(low / other), math.sqrt(high / other) - 1) >= epsilon - 1e-12


@settings(deadline=None, max_examples=60)
@given(n=st.integers(3, 12), seed=st.integers(0, 10**6), isolated=st.booleans())
def test_the_spectrum_of_the_aggregation_matrix_is_from_0_to_2(
    n: int, seed: int, isolated: bool
) -> None:
    A = torch.triu(torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < 0.4, 1)
    A[0, 1] = True
    edges = (A | A.T).nonzero().T
    values = torch.linalg.eigvalsh(aggregation(edges, n + isolated))
    # With an edge anywhere λ_max is 2, as the paper says; without one it is 1.
    assert abs(values[-1] - 2.0) < 1e-12
    assert values[0] > -1e-12
    assert float(torch.linalg.eigvalsh(aggregation(edges[:, :0], n))[-1]) == 1.0


def test_lambda_0_is_bounded_by_the_square_of_the_least_eigenvalue_not_by_it() -> None:
    p = theory.complete(3)  # a triangle: the eigenvalues of Ā are 2, 1/2, 1/2
    of_a = float(torch.linalg.eigvalsh(p.a_bar)[0])
    of_h = float(torch.linalg.eigvalsh(limit_gram(p.x_hat, 2))[0])
    assert of_a == pytest.approx(0.5)
    assert theory.least_eigenvalue(p, 2) == pytest.approx(of_h * of_a**2, rel=1e-9)
    for seed in range(20):
        q = theory.ring(8, 5, seed)
        of_a = float(torch.linalg.eigvalsh(q.a_bar)[0])
        of_kernel = float(torch.linalg.eigvalsh(limit_gram(q.x_hat, 2))[0])
        assert theory.least_eigenvalue(q, 2) >= of_kernel * of_a**2 - 1e-14


def test_a_complete_graph_s_rows_are_orthogonal_and_its_kernel_is_known() -> None:
    for n in (3, 4, 7):
        p = theory.complete(n)
        assert p.degrees.tolist() == [n - 1] * n
        torch.testing.assert_close(
            p.x_hat @ p.x_hat.T, torch.eye(n).double() * p.x_hat[0].square().sum()
        )
        assert float(p.spectrum[0] / p.spectrum[-1]) == pytest.approx((1 - 1 / (n - 1)) ** 2 / 4)


def test_a_graph_s_classes_are_its_targets() -> None:
    graph = tiny_graph()
    p = theory.Problem.from_graph(graph)
    assert p.y.unique().tolist() == [-1.0, 0.0, 1.0]
    assert p.x.dtype == p.y.dtype == torch.float64
    checks = {c.name: c for c in theory.check(graph)}
    assert checks["bounded targets"].value == 1.0
    assert not checks["‖x̂_i‖ ≤ 1"].holds
    assert checks["balanced degrees"].value == degree_balance(p.degrees)[0]


def test_what_is_no_problem_is_refused() -> None:
    x = torch.eye(3).double()
    y = torch.zeros(3).double()
    edges = torch.tensor([[0, 1], [1, 0]])
    graph = tiny_graph()
    for make, parts in (
        (lambda: theory.Problem(x.float(), edges, y), ("x is [3, 3] torch.float32", "float64")),
        (lambda: theory.Problem(x, edges, y[:, None]), ("y is [3, 1]", "[n] float64")),
        (lambda: theory.Problem(x, edges, y[:2]), ("y is [2]", "[3]")),
        (
            lambda: theory.Problem(x, torch.tensor([[0, 1, 2], [1, 2, 1]]), y),
            ("0 -> 1", "undirected"),
        ),
        (lambda: theory.ring(2), ("n is 2", "at least 3")),
        (lambda: theory.Problem.from_graph(graph, torch.zeros(3)), ("y is [3]", "[24]")),
        (lambda: theory.Problem.from_graph(tiny_graph(multi_label=True)), ("give y",)),
    ):
        with refused(*parts):
            make()


@given(st.integers(5, 9), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_a_basis_of_the_rows_of_x_leaves_what_training_depends_on(
    n: int, d: int, seed: int
) -> None:
    p = theory.ring(n, d, seed)
    if seed % 2:
        p = replace(p, x=p.x[torch.arange(n) // 2])  # equal rows: X has not full rank
    same = theory.in_basis_of_rows(p)
    assert same.d == min(n, d)
    torch.testing.assert_close(same.x @ same.x.T, p.x @ p.x.T)
    torch.testing.assert_close(theory.limit_kernel(same, 2), theory.limit_kernel(p, 2))


def test_the_diagonal_and_parallel_rows_are_exact() -> None:
    x_hat = torch.tensor([[3.0, 4.0], [6.0, 8.0], [-3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    products = torch.tensor([[25, 50, 0, 0], [50, 100, 0, 0], [0, 0, 25, 0], [0, 0, 0, 0]])
    expected = products.double() / 2
    torch.testing.assert_close(limit_gram(x_hat, 1), expected, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(output_gram(x_hat), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("m", [1, 4])
def test_finite_kernels_converge_with_the_root_of_the_width(m: int) -> None:
    p = theory.ring(8, 5)
    widths = [64, 256, 1024]
    distances = [theory.measure_kernel_distance(p, d_1, m, 60) for d_1 in widths]
    assert theory.exponent(widths, distances) == pytest.approx(-0.5, abs=0.1)


def test_kernels_of_the_sub_gcns_add_up_and_do_not_have_the_papers_scale() -> None:
    p = theory.ring(8, 5)
    m = 3
    d_1 = 600
    theta = torch.randn(p.d, d_1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = [block for (block,) in theory.make_gist(p, d_1, m).blocks(0)]
    parts = sum(kernel(p, theta[:, block], d_1) for block in blocks)
    torch.testing.assert_close(parts, kernel(p, theta, d_1), rtol=1e-12, atol=1e-14)
    limit = limit_gram(p.x_hat, m)
    assert (gram(p.x_hat, theta[:, blocks[0]], d_1) - limit / d_1).norm() > 0.9 * limit.norm()


def test_a_step_changes_the_output_by_its_secant_kernel_exactly() -> None:
    p = theory.ring(8, 5)
    m = 2
    d_1 = 64
    eta = 0.3
    trace = theory.train_round(theory.make_gist(p, d_1, m), p, 3, eta)
    for outputs, weights in zip(trace.outputs, trace.weights, strict=True):
        for k in range(3):
            G = secant_kernel(p, weights[k], weights[k + 1], d_1)
            torch.testing.assert_close(outputs[k + 1] - outputs[k], eta * G @ (p.y - outputs[k]))
        # Without a step it is the kernel of the weights.
        torch.testing.assert_close(
            secant_kernel(p, weights[0], weights[0], d_1), kernel(p, weights[0], d_1)
        )


def test_sparse_features_of_the_nearest_nodes_are_those_of_dense_ones() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.eye(30, 50)
    one, other = torch.randint(30, (2, 60), generator=rng)
    edge_index = torch.stack([torch.cat([one, other]), torch.cat([other, one])])
    splits = {"train": [0, 1], "val": [2]}
    graphs = [
        Graph.build(features, edge_index, torch.arange(30) % 2, **splits)
        for features in (x, x.to_sparse_csr())
    ]
    assert graphs[1].x.layout is torch.sparse_csr
    dense, sparse = (theory.Problem.from_graph(nearest_nodes(graph, 12)) for graph in graphs)
    assert torch.equal(sparse.x, dense.x)
    assert torch.equal(sparse.edge_index, dense.edge_index)
