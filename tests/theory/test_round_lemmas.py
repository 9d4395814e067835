"""The lemmas on a round: the identities hold exactly, and the bounds where their conditions do."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import theory
from gistgnn.theory.bounds import proof_step
from gistgnn.theory.model import global_output, kernel_drift


def disagreement(outputs: torch.Tensor) -> torch.Tensor:
    """Σ_j Σ_{j' < j} ‖ŷ^(j) − ŷ^(j')‖² of the sub-GCNs' outputs [m, n]."""
    return (outputs[:, None] - outputs[None]).square().sum() / 2


def expected_deviation(problem: theory.Problem, theta: torch.Tensor, m: int) -> float:
    """E‖ŷ(t) − ŷ^(j)(t, 0)‖² over the masks, given Θ_t [d, d_1].

    It is (m−1)/(m² d_1) ‖Ā σ(X̂Θ)‖_F² exactly (ours).
    """
    hidden = problem.a_bar @ (problem.x_hat @ theta).relu()
    return float(hidden.square().sum()) * (m - 1) / (m**2 * theta.shape[1])


def movement_bound(
    problem: theory.Problem, step_size: float, local_errors: torch.Tensor, d_1: int
) -> float:
    """How far a neuron moves at most in a round (Lemma local_converge).

    That is 2η √(n / d_1) Σ_k ‖y − ŷ^(j)(t, k)‖.
    """
    return 2.0 * step_size * math.sqrt(problem.n / d_1) * float(local_errors.sqrt().sum())


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs() / b.abs())


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(5, 9),
    d=st.integers(1, 6),
    m=st.integers(2, 5),
    seed=st.integers(0, 2**31),
    steps=st.integers(1, 3),
)
def test_both_lemmas_hold_with_the_mean_and_fail_with_the_sum(
    n: int, d: int, m: int, seed: int, steps: int
) -> None:
    p = theory.ring(n, d, seed)
    round_ = theory.train_round(theory.make_gist(p, 40, m, seed), p, steps, 0.05)
    start = round_.outputs[:, 0]
    end = round_.outputs[:, -1]
    error = (p.y - round_.after).square().sum()
    deviation = (round_.before - start).square().sum()
    # Lemma global_error_decompose
    decomposed = (p.y - end).square().sum() / m - disagreement(end) / m**2
    total = disagreement(start) / m  # Lemma subnetwork_deviation
    assert relative(decomposed, error) <= 1e-10
    assert relative(total, deviation) <= 1e-10
    # The paper has f = Σ_j f^(j), which is m times the output that its lemmas are about.
    assert relative(decomposed, (p.y - m * round_.after).square().sum()) > 1e-6
    assert relative(total, (m * round_.before - start).square().sum()) > 1e-6


def test_one_sub_gcn_is_gradient_descent_on_the_whole_gcn() -> None:
    p = theory.ring(8, 5)
    gist = theory.make_gist(p, 30, 1)
    theta = theory.global_weights(gist).requires_grad_()
    a = gist.model().a
    round_ = theory.train_round(gist, p, 4, 0.1)
    for _ in range(4):
        output = p.a_bar @ (p.x_hat @ theta).relu() @ a / math.sqrt(30)
        # The paper's gradient is half of that of the squared error.
        (full,) = torch.autograd.grad((p.y - output).square().sum(), theta)
        theta = (theta - 0.1 * full / 2).detach().requires_grad_()
    torch.testing.assert_close(theory.global_weights(gist), theta.detach(), rtol=1e-12, atol=1e-14)
    assert set(a.tolist()) == {-1.0, 1.0}
    assert torch.equal(gist.model().a, a)
    torch.testing.assert_close(round_.after, global_output(gist, p))


def test_sub_gcns_deviate_from_the_gcn_as_expected_and_are_it_in_the_mean() -> None:
    p = theory.ring(8, 5)
    m = 3
    draws = 150
    gist = theory.make_gist(p, 100, m)
    theta = theory.global_weights(gist)
    a = gist.model().a
    hidden = p.a_bar @ (p.x_hat @ theta).relu() * a / 10
    outputs = torch.stack([hidden[:, gist.blocks(t)[0][0]].sum(dim=1) for t in range(draws)])
    squares = (outputs - global_output(gist, p)).square().sum(dim=1)
    deviation = abs(squares.mean() - expected_deviation(p, theta, m))
    assert deviation <= 3 * squares.std() / math.sqrt(draws)
    off = (outputs.mean(dim=0) - global_output(gist, p)).abs()
    assert bool((off <= 4 * outputs.std(dim=0) / math.sqrt(draws)).all())
    seeds = 30
    starts = [global_output(theory.make_gist(p, 30, 2, seed), p) for seed in range(seeds)]
    errors = (p.y - torch.stack(starts)).square().sum(dim=1)
    deviation = abs(errors.mean() - theory.expected_initial_error(p, 2))
    assert deviation <= 3 * errors.std() / math.sqrt(seeds)


def test_local_training_contracts_as_the_lemma_says_where_its_conditions_hold() -> None:
    for m in (2, 3):
        measured = theory.measure_contraction(theory.complete(6, m), 4096, m, 5, seeds=2)
        assert measured["trained"] == 2 * m
        assert measured["met"] >= m
        assert measured["slowest"] <= measured["factor"] < 1
    of_one_neuron = theory.measure_contraction(theory.complete(6), 2, 2, 2, seeds=1)
    assert math.isnan(of_one_neuron["slowest"])
    # And no neuron moves further than is allowed.
    p = theory.complete(6)
    d_1 = 4096
    gist = theory.make_gist(p, d_1, 2)
    eta = proof_step(p, 2)
    start = theory.global_weights(gist)
    trace = theory.train_round(gist, p, 5, eta)
    for j, (block,) in enumerate(gist.blocks(0)):
        moves = [(theta - start[:, block]).norm(dim=0).max() for theta in trace.weights[j]]
        moved = float(max(moves))
        assert 0 < moved <= movement_bound(p, eta, trace.local_errors(p.y)[j, :-1], d_1)


@pytest.mark.parametrize("m", [2, 3])
def test_at_the_recommended_step_local_training_contracts_by_the_square(m: int) -> None:
    p = theory.complete(6)
    d_1 = 16384
    eta = theory.recommended_step(p, m)
    lambda_0 = theory.least_eigenvalue(p, m)
    assert eta > 1e5 * proof_step(p, m)
    round_ = theory.train_round(theory.make_gist(p, d_1, m), p, 6, eta)
    assert kernel_drift(p, [round_], d_1) <= lambda_0 / 2
    errors = round_.local_errors(p.y)
    assert bool((errors[:, 1:] <= (1 - eta * lambda_0 / 2) ** 2 * errors[:, :-1]).all())
    # Far above it the lemma's conclusion fails: the step is what keeps it.
    large = theory.train_round(theory.make_gist(p, d_1, m), p, 3, 3 * eta).local_errors(p.y)
    assert bool((large[:, 1:] > large[:, :-1]).any())


def nearly_parallel(y: torch.Tensor) -> theory.Problem:
    base = theory.ring(8, 5)
    x = 0.01 * base.x
    x[:, 0] = 0.5
    return theory.Problem(x / (2.0 * x.norm(dim=1, keepdim=True)), base.edge_index, y)


def test_steps_of_the_local_proof_that_lose_a_factor_n() -> None:
    """‖ŷ(k+1) − ŷ(k)‖² <= 4η² ‖Ā²‖_{1,1} ‖y − ŷ(k)‖² fails for nearly parallel rows.

    With n it holds.
    """
    p = nearly_parallel(torch.ones(8, dtype=torch.float64) * 50)
    eta = 1e-4
    trace = theory.train_round(theory.make_gist(p, 4096, 1), p, 1, eta)
    outputs = trace.outputs[0]
    (before, after) = trace.weights[0]
    moved = float((outputs[1] - outputs[0]).square().sum() / (p.y - outputs[0]).square().sum())
    assert 1.5 * 4 * eta**2 * p.mass < moved <= 4 * eta**2 * p.mass * p.n
    # So does the gradient's bound without ‖Ā‖ = 2.
    bound = movement_bound(p, eta, trace.local_errors(p.y)[0, :1], 4096)
    assert 0.99 * bound < float((after - before).norm(dim=0).max()) <= bound
    # So does <y − ŷ(k), I_2> <= 4ηŝ/d_1 ‖y − ŷ(k)‖² of the neurons S^⊥. With R large these are all,
    # and I_2 is the whole change.
    residual = p.y - outputs[0]
    along = float(residual @ (outputs[1] - outputs[0]) / residual.square().sum())
    assert 4 * 4 * eta < along <= 4 * p.n * eta


def test_the_printed_deviation_of_sub_gcns_fails_at_its_largest_radius() -> None:
    p = nearly_parallel(theory.ring(8, 5).y)
    m = 2
    d_1 = 20000
    start = torch.randn(p.d, d_1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theta = start.clone()
    theta[0] += 0.5  # every neuron moves by R = 1/2
    assert float(p.x_hat.norm(dim=1).max()) <= 1.0 + 1e-12
    # The lemma's premise holds.
    assert float((p.x_hat @ start).square().sum(dim=1).max()) <= (2 - 0.5**2) * d_1
    assert 4 * p.n * (m - 1) / m**2 < expected_deviation(p, theta, m) <= 16 * p.n * (m - 1) / m**2
