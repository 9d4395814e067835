"""What GIST adds to the error to leading order, against brute force and against training."""

import pytest
import torch
from refusals import refused
from theory_of_gist.instances import orthogonal, problem

from gistgnn.theory import (
    added_error,
    expected_initial_error,
    fitted,
    least_eigenvalue,
    limit_error,
    limit_kernel,
    output_gram,
    predicted_error,
    recommended_step,
    stationary_error,
    train,
)


@pytest.mark.parametrize("zeta", [1, 3])
def test_it_is_the_sum_that_it_is_said_to_be(zeta: int) -> None:
    p, m, d_1, samples = problem(6, 4), 3, 500, 64
    eta = recommended_step(p, m)
    found = stationary_error(p, d_1, m, zeta, eta, samples=samples, seed=5)
    theta = torch.randn(p.d, samples, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    Q = torch.eye(p.n, dtype=torch.float64) - eta * limit_kernel(p, m)
    S = p.a_bar @ output_gram(p.x_hat) @ p.a_bar
    N = torch.zeros(p.n, p.n, dtype=torch.float64)
    for neuron in theta.T:
        active = (p.x_hat @ neuron >= 0).double()
        K = p.a_bar @ (p.x_hat @ p.x_hat.T * active[:, None] * active) @ p.a_bar
        powers = [torch.linalg.matrix_power(Q, k) for k in range(zeta)]
        L = sum(powers[zeta - 1 - k] @ K @ powers[k] for k in range(zeta))
        N += L @ S @ L.T / samples
    N *= eta**2 * (m - 1) / (m**4 * d_1)
    assert found.added == pytest.approx(float(N.trace()), rel=1e-9)
    C = N.clone()
    for _ in range(4000):  # C = Q^ζ C Q^ζ + N
        C = N + torch.linalg.matrix_power(Q, zeta) @ C @ torch.linalg.matrix_power(Q, zeta)
    assert (1 - eta * least_eigenvalue(p, m)) ** (2 * zeta * 4000) < 1e-9
    assert found.remaining == pytest.approx(float(C.trace()), rel=1e-6)


def test_what_is_predicted_begins_and_ends_as_its_parts() -> None:
    p, rounds = orthogonal(), 60
    eta, initial = recommended_step(p, 2), expected_initial_error(p, 2)
    found = predicted_error(p, 1000, 2, 3, eta, rounds)
    added = stationary_error(p, 1000, 2, 3, eta)
    assert float(found[0]) == pytest.approx(initial)
    assert float(found[1] - limit_error(p, 2, eta, 3)[3]) == pytest.approx(added.added)
    assert float(found[-1]) == pytest.approx(added.remaining)
    alone = predicted_error(p, 1000, 1, 3, recommended_step(p, 1), rounds)
    assert torch.equal(alone, limit_error(p, 1, recommended_step(p, 1), 3 * rounds)[::3])


def test_its_laws() -> None:
    p = orthogonal()
    eta = recommended_step(p, 8)
    one = stationary_error(p, 1000, 2, 1, eta)
    assert stationary_error(p, 4000, 2, 1, eta).remaining == pytest.approx(one.remaining / 4)
    assert stationary_error(p, 1000, 1, 1, eta).remaining == 0.0
    other = stationary_error(p, 1000, 4, 1, eta)
    assert other.added / one.added == pytest.approx((3 / 4**4) / (1 / 2**4))
    # with η in proportion to m, Q is the same, and (m−1)/m² is left
    grown = stationary_error(p, 1000, 4, 1, 2 * eta)
    assert grown.remaining / one.remaining == pytest.approx((3 / 4**2) / (1 / 2**2))


@pytest.mark.parametrize("zeta", [1, 8])
def test_training_adds_what_it_says(zeta: int) -> None:
    p = orthogonal()
    eta = recommended_step(p, 2)
    measured = added_error(p, 4096, 2, zeta, eta, draws=25, seeds=8)
    assert measured == pytest.approx(stationary_error(p, 4096, 2, zeta, eta).added, rel=0.25)


def test_training_ends_where_it_says() -> None:
    p, d_1, seeds = orthogonal(), 8192, 10
    eta = recommended_step(p, 2)
    left = [float(train(*fitted(p, d_1, 2, seed), 40, 1, eta)[20:].mean()) for seed in range(seeds)]
    error = torch.tensor(left).std() / seeds**0.5
    expected = stationary_error(p, d_1, 2, 1, eta).remaining
    assert error < 0.2 * expected
    assert abs(torch.tensor(left).mean() - expected) <= 3 * error


def test_nothing_is_stationary_without_a_positive_kernel() -> None:
    with refused("λ_0 is 0"):
        stationary_error(problem(8, 8, 0, 1), 100, 2, 1, 0.1)
