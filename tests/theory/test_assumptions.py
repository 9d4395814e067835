import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.theory import Problem, check, least_eigenvalue
from gistgnn.theory.assumptions import degree_balance, smallest_angle
from gistgnn.theory.gram import limit_gram
from gistgnn.theory.problem import aggregation
from tests.helpers.models import tiny_graph
from tests.theory.problems import orthogonal, problem

examples = settings(deadline=None, max_examples=60)


def verdicts(p: Problem) -> dict[str, bool]:
    return {c.name: c.holds for c in check(p, 2)}


def names_that_fail(p: Problem) -> set[str]:
    return {name for name, holds in verdicts(p).items() if not holds}


def test_all_assumptions_hold_on_the_problems_of_these_tests() -> None:
    assert not names_that_fail(problem())
    assert not names_that_fail(orthogonal())


def test_a_bipartite_component_fails() -> None:
    assert names_that_fail(problem(8, 8, 0, 1)) == {"λ_min(Ā) ≠ 0", "λ_0 > 0"}  # an even ring
    assert not names_that_fail(problem(9, 9, 0, 1))  # an odd one


def test_an_isolated_node_fails_the_balance_of_degrees_only_there() -> None:
    p = problem(5, 4, 0, 1)
    with_one_more = Problem(torch.cat([p.x, p.x[:1].flip(1)]) * 0.0 + 0.01, p.edge_index, torch.zeros(6).double())
    assert with_one_more.degrees.tolist() == [2, 2, 2, 2, 2, 0]
    failed = names_that_fail(with_one_more)
    assert "balanced degrees" in failed
    assert "λ_min(Ā) ≠ 0" not in failed


def test_rows_that_are_long_or_parallel_fail() -> None:
    p = problem()
    assert names_that_fail(Problem(3.0 * p.x, p.edge_index, p.y)) == {"‖x_i‖ ≤ (1 − ε) / 2", "‖x̂_i‖ ≤ 1"}
    x_hat = p.x_hat.clone() * 0.1
    x_hat[1] = 2.0 * x_hat[0]
    x = torch.linalg.solve(p.a_bar, x_hat)
    # no two rows of X are parallel: the assumption on X does not give the property of X̂
    assert smallest_angle(x) > 1e-3
    assert {"no parallel x̂_i", "λ_0 > 0"} <= names_that_fail(Problem(x, p.edge_index, p.y))
    x_hat[1] = 0.0
    assert smallest_angle(x_hat) == 0.0


@examples
@given(degrees=st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_the_least_epsilon_is_that_of_a_search(degrees: list[int]) -> None:
    epsilon, p = degree_balance(torch.tensor(degrees).double())
    low, high = min(degrees), max(degrees)
    assert (1 - epsilon) ** 2 * p <= low * (1 + 1e-12)
    assert high <= (1 + epsilon) ** 2 * p * (1 + 1e-12)
    for other in range(1, high + 2):
        assert max(1 - math.sqrt(low / other), math.sqrt(high / other) - 1) >= epsilon - 1e-12


@examples
@given(n=st.integers(3, 12), seed=st.integers(0, 10**6), isolated=st.booleans())
def test_the_spectrum_of_the_aggregation_matrix(n: int, seed: int, isolated: bool) -> None:
    rng = torch.Generator().manual_seed(seed)
    A = torch.triu(torch.rand(n, n, generator=rng) < 0.4, 1)
    A[0, 1] = True
    edges = (A | A.T).nonzero().T
    values = torch.linalg.eigvalsh(aggregation(edges, n + isolated))
    # with an edge anywhere λ_max is 2, as the paper says; without one it is 1
    assert abs(values[-1] - 2.0) < 1e-12
    assert values[0] > -1e-12
    assert float(torch.linalg.eigvalsh(aggregation(edges[:, :0], n))[-1]) == 1.0


def test_lambda_0_is_bounded_by_the_square_of_the_least_eigenvalue_not_by_it() -> None:
    p = orthogonal(3)  # a triangle: the eigenvalues of Ā are 2, 1/2, 1/2
    of_a = float(torch.linalg.eigvalsh(p.a_bar)[0])
    of_h = float(torch.linalg.eigvalsh(limit_gram(p.x_hat, 2))[0])
    assert of_a == pytest.approx(0.5)
    assert least_eigenvalue(p, 2) == pytest.approx(of_h * of_a**2, rel=1e-9)
    assert least_eigenvalue(p, 2) < 0.51 * of_h * of_a
    for seed in range(20):
        q = problem(seed=seed)
        of_a = float(torch.linalg.eigvalsh(q.a_bar)[0])
        assert least_eigenvalue(q, 2) >= float(torch.linalg.eigvalsh(limit_gram(q.x_hat, 2))[0]) * of_a**2 - 1e-14


def test_a_graph_is_checked_with_its_classes_as_targets() -> None:
    checks = {c.name: c for c in check(tiny_graph())}
    assert checks["bounded targets"].value == 1.0
    assert not checks["‖x̂_i‖ ≤ 1"].holds
    assert checks["balanced degrees"].value == degree_balance(Problem.from_graph(tiny_graph()).degrees)[0]
