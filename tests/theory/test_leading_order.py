"""What GIST adds to the error to leading order, against brute force and against training."""

from dataclasses import replace

import pytest
import torch

from gistgnn import theory
from gistgnn.theory.model import start_without_error
from gistgnn.theory.problem import greatest_eigenvalue, output_covariance
from tests.helpers.refusals import refused


@pytest.mark.parametrize("zeta", [1, 3])
def test_it_is_the_sum_of_its_definition(zeta: int) -> None:
    p = theory.ring(6, 4)
    m = 3
    d_1 = 500
    samples = 64
    eta = theory.recommended_step(p, m)
    computed = theory.LeadingOrder.of(p, theory.Hyperparameters(d_1, m, zeta, eta), samples=samples)
    theta = torch.randn(
        p.d, samples, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    Q = torch.eye(p.n, dtype=torch.float64) - eta * theory.limit_kernel(p, m)
    S = output_covariance(p)
    N = torch.zeros(p.n, p.n, dtype=torch.float64)
    for neuron in theta.T:
        active = (p.x_hat @ neuron >= 0).double()
        K = p.a_bar @ (p.x_hat @ p.x_hat.T * active[:, None] * active) @ p.a_bar
        powers = [torch.linalg.matrix_power(Q, k) for k in range(zeta)]
        L = sum(powers[zeta - 1 - k] @ K @ powers[k] for k in range(zeta))
        N += L @ S @ L.T / samples
    N *= eta**2 * (m - 1) / (m**4 * d_1)
    assert computed.added == pytest.approx(float(N.trace()), rel=1e-9)
    C = N.clone()
    for _ in range(4000):  # C = Q^ζ C Q^ζ + N
        C = N + torch.linalg.matrix_power(Q, zeta) @ C @ torch.linalg.matrix_power(Q, zeta)
    assert (1 - eta * theory.least_eigenvalue(p, m)) ** (2 * zeta * 4000) < 1e-9
    assert computed.remaining == pytest.approx(float(C.trace()), rel=1e-6)


def test_what_is_predicted_begins_and_ends_as_its_parts() -> None:
    p = theory.complete(6)
    rounds = 60
    eta = theory.recommended_step(p, 2)
    initial = theory.expected_initial_error(p, 2)
    numbers = theory.Hyperparameters(1000, 2, 3, eta)
    computed = theory.predicted_error(p, numbers, rounds)
    added = theory.LeadingOrder.of(p, numbers)
    assert float(computed[0]) == pytest.approx(initial)
    assert float(computed[1] - theory.limit_error(p, 2, 3, eta, 1)[1]) == pytest.approx(added.added)
    assert float(computed[-1]) == pytest.approx(added.remaining)
    of_one = theory.Hyperparameters(1000, 1, 3, theory.recommended_step(p, 1))
    alone = theory.predicted_error(p, of_one, rounds)
    assert torch.equal(alone, theory.limit_error(p, 1, 3, theory.recommended_step(p, 1), rounds))
    torch.testing.assert_close(
        theory.limit_error(p, 1, 3, eta, 4), theory.limit_error(p, 1, 1, eta, 12)[::3]
    )


def test_training_ends_where_it_says() -> None:
    p = theory.complete(6)
    d_1 = 4096
    seeds = 10
    eta = theory.recommended_step(p, 2)
    left = [
        float(theory.train(*start_without_error(p, d_1, 2, seed), 30, 1, eta)[15:].mean())
        for seed in range(seeds)
    ]
    error = torch.tensor(left).std() / seeds**0.5
    expected = theory.LeadingOrder.of(p, theory.Hyperparameters(d_1, 2, 1, eta)).remaining
    assert error < 0.2 * expected
    assert abs(torch.tensor(left).mean() - expected) <= 3 * error


def test_many_local_steps_add_nothing_and_what_has_no_leading_order_is_refused() -> None:
    p = theory.complete(6)
    step = theory.recommended_step(p, 2)
    numbers = theory.Hyperparameters(1000, 2, 10**9, step)
    many = theory.LeadingOrder.of(p, numbers, samples=10)  # no more memory or time
    assert 0 <= many.added < 1e-20
    with refused("λ_0 is 0"):
        theory.LeadingOrder.of(
            theory.ring(8, 8, jumps=(1,)), theory.Hyperparameters(100, 2, 1, 0.1)
        )
    with refused("step_size is", "2 / λ_max"):
        theory.LeadingOrder.of(p, replace(numbers, step_size=2.0 / greatest_eigenvalue(p, 2)))


def test_what_a_round_adds_is_what_the_leading_order_says() -> None:
    p = theory.complete(6)
    d_1 = 1024
    eta = theory.recommended_step(p, 2)
    for width, zeta in ((2048, 1), (4096, 8)):
        numbers = theory.Hyperparameters(width, 2, zeta, eta)
        measured = theory.measure_added_error(p, numbers, draws=25, seeds=8)
        assert measured == pytest.approx(theory.LeadingOrder.of(p, numbers).added, rel=0.25)
    one, two, four = (
        theory.measure_added_error(
            p, theory.Hyperparameters(d_1, 2, zeta, eta / 400), draws=15, seeds=4
        )
        for zeta in (1, 2, 4)
    )
    assert one < two < four
    assert four / one == pytest.approx(16.0, rel=0.05)  # ζ², while ηζ is small: the bound has ζ
    of_one = theory.Hyperparameters(d_1, 1, 2, eta)
    assert theory.measure_added_error(p, of_one, draws=2, seeds=2) < 1e-25
    # Where the sub-GCNs train until they fit y, they agree: with large steps it falls.
    many, single = (
        theory.measure_added_error(p, theory.Hyperparameters(d_1, 2, zeta, eta), draws=5, seeds=2)
        for zeta in (32, 1)
    )
    assert many < 0.1 * single
