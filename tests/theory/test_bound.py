import math

import pytest
import torch

from gistgnn.theory import (
    Bound,
    Prediction,
    Problem,
    ProvedBound,
    check,
    least_eigenvalue,
    make_gist,
    recommended_step,
    train,
    train_round,
)
from gistgnn.theory.bounds import kernel_drift
from gistgnn.theory.lemmas import (
    deviation_bound,
    disagreement,
    expected_deviation,
    expected_initial_error,
    initial_error_bound,
    kernel_width,
    limit_error_term,
    local_factor,
    movement_bound,
    proof_step,
)
from gistgnn.theory.measure_training import exponent, measure_contraction
from gistgnn.theory.model import global_weights, sample_next_errors, start_without_error
from tests.helpers.refusals import refused
from tests.theory.problems import orthogonal, problem


def test_local_training_contracts_as_the_lemma_says_where_its_conditions_hold() -> None:
    for m in (2, 3):
        measured = measure_contraction(orthogonal(6, m), 4096, m, 5, seeds=2)
        assert measured.trained == 2 * m
        assert measured.met >= m
        assert measured.slowest <= measured.factor < 1
    of_one_neuron = measure_contraction(orthogonal(), 2, 2, 2, seeds=1)  # its kernels are not positive
    assert math.isnan(of_one_neuron.slowest)


def test_no_neuron_moves_further_than_is_allowed() -> None:
    p, d_1 = orthogonal(), 4096
    gist, eta = make_gist(p, d_1, 2), proof_step(p, 2)
    start, trace = global_weights(gist), train_round(gist, p, 5, eta, keep_weights=True)
    for j, (block,) in enumerate(gist.blocks(0)):
        moved = max(float((theta - start[:, block]).norm(dim=0).max()) for theta in trace.weights[j])
        assert 0 < moved <= movement_bound(p, eta, trace.local_errors(p.y)[j, :-1], d_1)


@pytest.mark.parametrize("m", [2, 3])
def test_at_the_recommended_step_local_training_contracts_by_the_square(m: int) -> None:
    p, d_1 = orthogonal(), 16384
    eta, lambda_0 = recommended_step(p, m), least_eigenvalue(p, m)
    assert eta > 1000 * proof_step(p, m)
    gist = make_gist(p, d_1, m)
    round_ = train_round(gist, p, 6, eta, keep_weights=True)
    assert kernel_drift(p, [round_], d_1) <= lambda_0 / 2
    errors = round_.local_errors(p.y)
    assert bool((errors[:, 1:] <= local_factor(eta, lambda_0) ** 2 * errors[:, :-1]).all())
    # far above it the lemma's conclusion fails: the step is what keeps it
    large = train_round(make_gist(p, d_1, m), p, 3, 3 * eta).local_errors(p.y)
    assert bool((large[:, 1:] > large[:, :-1]).any())


@pytest.mark.parametrize(("m", "zeta"), [(1, 2), (2, 1), (2, 4), (4, 2)])
def test_the_proved_bound_holds_in_every_round_of_every_run(m: int, zeta: int) -> None:
    p, d_1 = orthogonal(), 16384
    eta, lambda_0 = recommended_step(p, m), least_eigenvalue(p, m)
    gist = make_gist(p, d_1, m, seed=m)
    traces = [train_round(gist, p, zeta, eta, keep_weights=True) for _ in range(12)]
    bound = ProvedBound(lambda_0, kernel_drift(p, traces, d_1), eta, zeta)
    V = [trace.deviation() for trace in traces]
    errors = [float((p.y - trace.before).norm()) for trace in traces]
    errors.append(float((p.y - traces[-1].after).norm()))
    for t in range(12):
        assert errors[t + 1] <= bound.after(errors[t], V[t])
        assert errors[t + 1] ** 2 <= bound.at(t + 1, errors[0] ** 2, max(V))
    assert bound.contraction < 1
    assert errors[-1] < 0.5 * errors[0]
    assert (bound.neighbourhood(max(V)) > 0) == (m > 1)


@pytest.mark.parametrize("seed", range(8))
def test_the_measured_error_stays_under_the_theorems_bound(seed: int) -> None:
    bases = [orthogonal(4 + seed % 3, seed), problem(5 + seed % 4, 6, seed), problem(9, 9, seed, 1)]
    base, m, zeta, d_1, rounds = bases[seed % 3], 2 + seed % 3, 1 + seed % 4, 512, 6
    assert all(assumption.holds for assumption in check(base, m))
    eta = recommended_step(base, m)
    runs = torch.stack([train(make_gist(base, d_1, m, s), base, rounds, zeta, eta) for s in range(5)]).mean(dim=0)
    start = expected_initial_error(base, m)
    assert start <= initial_error_bound(base, m)
    for printed in (True, False):
        bound = Bound(base, m, zeta, eta, d_1, printed=printed)
        assert 0 < bound.contraction < 1
        assert all(float(runs[t]) <= bound.at(t, start) for t in range(1, rounds + 1))
    assert runs[-1] < runs[0]


def test_the_initial_error_is_as_expected() -> None:
    p, m, seeds = problem(), 2, 400
    errors = []
    for seed in range(seeds):
        rng = torch.Generator().manual_seed(seed)
        theta = torch.randn(p.d, 30, dtype=torch.float64, generator=rng)
        a = torch.randn(30, dtype=torch.float64, generator=rng).sign()
        output = p.a_bar @ (p.x_hat @ theta).relu() @ a / math.sqrt(30) / m
        errors.append((p.y - output).square().sum())
    measured = torch.stack(errors)
    assert abs(measured.mean() - expected_initial_error(p, m)) <= 3 * measured.std() / math.sqrt(seeds)


def test_the_error_lemma_fails_at_large_width() -> None:
    """ι_0 of y = 0 tends to a positive number; what the lemma allows does not reach it, for any γ."""
    base, m, zeta, d_1 = orthogonal(3), 2, 2, 2**19
    eta, lambda_0 = recommended_step(base, m) / 4, least_eigenvalue(base, m)
    p = Problem(base.x, base.edge_index, torch.zeros(base.n, dtype=torch.float64))
    limit = limit_error_term(p, m, zeta, eta)
    measured, allowed = [], []
    bound = Bound(p, m, zeta, eta, d_1, gamma=0.9, printed=True)
    for seed in range(8):
        trace = train_round(make_gist(p, d_1, m, seed), p, zeta, eta)
        ends = [float(disagreement(trace.outputs[:, k])) / m**2 for k in (0, zeta)]
        measured.append(ends[0] - ends[1])
        local = float(trace.local_errors(p.y)[:, :zeta].sum())
        allowed.append(eta * 0.9 * lambda_0 / (2 * m) * local + bound.round_error)
    spread = torch.tensor(measured).std() / math.sqrt(len(measured))
    assert abs(torch.tensor(measured).mean() - limit.fall) <= 4 * spread
    assert sum(measured) > 2 * sum(allowed)
    assert limit.fall > 2 * sum(allowed) / len(allowed)
    assert limit.fall > 10 * limit.allowed  # γ = 1, d_1 = ∞


@pytest.mark.parametrize("from_zero", [True, False])
def test_the_error_lemma_fails_for_every_y_once_the_error_is_small(from_zero: bool) -> None:
    """ι_t is at least (2/γ)(2 − ηλ_0) times what the lemma allows as d_1 → ∞, for y = ŷ(0), and for ±1 in the end."""
    base, m, zeta, d_1 = orthogonal(6), 2, 3, 2**14
    eta, lambda_0 = recommended_step(base, m), least_eigenvalue(base, m)
    gist, p = start_without_error(base, d_1, m, 5) if from_zero else (make_gist(base, d_1, m, 5), base)
    train(gist, p, 0 if from_zero else 25, zeta, eta)
    fall, allowed = 0.0, 0.0
    for _ in range(10):
        trace = train_round(gist, p, zeta, eta)
        assert float((p.y - trace.before).norm()) < 0.1 * trace.deviation()
        fall += float(disagreement(trace.outputs[:, 0]) - disagreement(trace.outputs[:, zeta])) / m**2
        allowed += eta * lambda_0 / (2 * m) * float(trace.local_errors(p.y)[:, :zeta].sum())  # γ = 1
    assert fall >= 0.97 * 2 * (2 - eta * lambda_0) * allowed


def test_steps_of_the_local_proof_that_lose_a_factor_n() -> None:
    """‖ŷ(k+1) − ŷ(k)‖² <= 4η² ‖Ā²‖_{1,1} ‖y − ŷ(k)‖² fails for nearly parallel rows; with n it holds."""
    base = problem(8, 5)
    x = 0.01 * base.x
    x[:, 0] = 0.5
    x = x / (2.0 * x.norm(dim=1, keepdim=True))
    p = Problem(x, base.edge_index, torch.ones(8, dtype=torch.float64) * 50)
    eta = 1e-4
    trace = train_round(make_gist(p, 4096, 1), p, 1, eta, keep_weights=True)
    outputs, (before, after) = trace.outputs[0], trace.weights[0]
    moved = float((outputs[1] - outputs[0]).square().sum() / (p.y - outputs[0]).square().sum())
    assert moved > 1.5 * 4 * eta**2 * p.mass
    assert moved <= 4 * eta**2 * p.mass * p.n
    # the gradient's bound without ‖Ā‖ = 2
    bound = movement_bound(p, eta, trace.local_errors(p.y)[0, :1], 4096)
    assert 0.99 * bound < float((after - before).norm(dim=0).max()) <= bound
    # <y − ŷ(k), I_2> <= 4ηŝ/d_1 ‖y − ŷ(k)‖² of the neurons S^⊥; with R large these are all, and I_2 is the whole change
    along = float((p.y - outputs[0]) @ (outputs[1] - outputs[0]) / (p.y - outputs[0]).square().sum())
    assert along > 4 * 4 * eta
    assert along <= 4 * p.n * eta


def test_the_printed_deviation_of_sub_gcns_fails_at_its_largest_radius() -> None:
    base, m, d_1 = problem(8, 5), 2, 20000
    x = 0.01 * base.x
    x[:, 0] = 0.5
    p = Problem(x / (2.0 * x.norm(dim=1, keepdim=True)), base.edge_index, base.y)
    theta = torch.randn(p.d, d_1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theta[0] += 0.5  # every neuron moves by R = 1/2
    assert float(p.x_hat.norm(dim=1).max()) <= 1.0 + 1e-12
    start = theta.clone()
    start[0] -= 0.5
    assert float((p.x_hat @ start).square().sum(dim=1).max()) <= (2 - 0.5**2) * d_1  # the lemma's premise
    assert 4 * p.n * (m - 1) / m**2 < expected_deviation(p, theta, m) <= deviation_bound(p.n, m)


def test_the_bounds_are_those_of_the_paper_and_of_its_proof() -> None:
    square, m, zeta, eta, d_1, gamma = orthogonal(7), 3, 4, 0.6, 1000, 0.25
    # one more feature that is zero, so that d is not n
    p = Problem(torch.cat([square.x, torch.zeros(7, 1).double()], dim=1), square.edge_index, square.y)
    n, d, mass, lambda_0 = 7, 8, 28.0, least_eigenvalue(p, m)
    assert p.mass == pytest.approx(mass)
    T, delta, initial = 12, 0.2, 9.0
    printed, right = (Bound(p, m, zeta, eta, d_1, gamma, printed=flag) for flag in (True, False))
    shrunk = (1 - eta * lambda_0 / 2) ** zeta
    alpha = (1 - gamma) * (1 - shrunk)
    for bound in (printed, right):
        assert bound.contraction == pytest.approx(gamma + (1 - gamma) * shrunk)
        assert bound.alpha == pytest.approx(alpha)
        assert bound.neighbourhood == pytest.approx(bound.round_error / alpha)
        assert bound.at(3, 2.0) == pytest.approx(
            (1 - alpha) ** 3 * 2.0 + bound.round_error * (1 + (1 - alpha) + (1 - alpha) ** 2)
        )
    assert printed.round_error == pytest.approx(64 * eta * 2**2 * zeta * mass * n * d / (gamma * 3**2 * d_1))
    assert right.round_error == pytest.approx(
        16 * eta * 2**2 * zeta * mass**2 * n * d / (gamma * lambda_0 * 3**2 * d_1)
    )

    def lacking(width: float) -> float:
        """How far hypothesis (1) at t = 0 is from holding."""
        B = math.sqrt(8 * 2 * eta * zeta * n / (3 * width))
        B *= math.sqrt(8 * 2 * mass * d / (gamma * 3)) + math.sqrt(eta * zeta * n * T / delta)
        start = 4 * T * eta * zeta / (delta * alpha) * math.sqrt(n / width * initial)
        return start + T * B - lambda_0 / (96 * n)

    asked = printed.width(T, delta, initial)
    assert lacking(asked) <= 0 < lacking(asked * 0.999)
    # put right: ‖Ā‖ = 2 in the first term, twice more in B's second part, and its first, the root of the right error,
    # with the first term's factor
    asked = right.width(T, delta, initial)
    root = math.sqrt(right.round_error * d_1)
    scale = 2 * 4 * T * eta * zeta / (delta * alpha) * math.sqrt(n)
    drift = 4 * eta * zeta * n * math.sqrt(8 * 2 * T / (3 * delta))

    def lacks(width: float) -> float:
        u = 1 / math.sqrt(width)
        return scale * u * math.sqrt(initial) + T * (scale * u * root * u + drift * u) - lambda_0 / (192 * n)

    assert lacks(asked) <= 0 < lacks(asked * 0.999)


def test_the_width_that_is_asked_for() -> None:
    p = orthogonal()
    eta = recommended_step(p, 2)
    bounds = [Bound(p, 2, 1, eta, 1024, printed=printed) for printed in (True, False)]
    asked = [bound.width(10, 0.1, initial_error_bound(p, 2)) for bound in bounds]
    assert 10**9 < asked[0] < asked[1]
    # a condition on √d_1 that does not depend on the d_1 the bound is made for
    other = Bound(p, 2, 1, eta, 2048, printed=True)
    assert other.width(10, 0.1, initial_error_bound(p, 2)) == pytest.approx(asked[0], rel=1e-12)
    widths = [kernel_width(p, m, 10, 0.1) for m in (1, 2, 4, 8)]
    assert abs(exponent([1, 2, 4, 8], [float(w) for w in widths]) - 2.0) < 0.2  # λ_0 is 1/m: λ_0^-2, not λ_0^-1


def test_values_that_no_bound_takes() -> None:
    p = orthogonal()
    with refused("gamma is 1.5"):
        Bound(p, 2, 1, 0.1, 100, gamma=1.5)
    with refused("step_size is 1e+06", "recommended_step"):
        Bound(p, 2, 1, 1e6, 100)
    with refused("λ_0 is", "check"):
        Bound(problem(8, 8, 0, 1), 2, 1, 0.1, 100)
    with refused("beyond what a float64 holds"):
        Bound(p, 2, 1, 0.1, 100, gamma=1e-320)
    with refused("delta is 1e-200", "beyond what a float64 holds"):
        Bound(p, 2, 1, 0.1, 100).width(10, 1e-200, 1.0)
    with refused("step_size is 5000"):
        ProvedBound(0.03, 0.01, 5000.0, 1)
    with refused("draws is 0"):
        sample_next_errors(make_gist(p, 64, 2), p, 1, 0.1, 0)
    for settings, message in (((0, 1, 9), "sub_gcns is 0"), ((2, 0, 9), "local_steps is 0"), ((2, 1, 1), "width is 1")):
        with refused(message):
            Prediction.of(p, *settings)
    with refused("ρ is 0.5"):
        ProvedBound(0.1, 0.5, 0.1, 1)
    with refused("keep_weights"):
        kernel_drift(p, [train_round(make_gist(p, 64, 2), p, 1, 0.1)], 64)
    with refused("local_steps is 0"):
        train_round(make_gist(p, 64, 2), p, 0, 0.1)
    with refused("delta is 2"):
        kernel_width(p, 2, 10, 2)
