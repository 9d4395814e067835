"""The theorem's bound, and those that are proved, against training."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gistgnn import theory
from gistgnn.theory.model import kernel_drift, start_without_error
from tests.helpers.refusals import refused
from tests.theory.test_round_lemmas import disagreement

NO_KERNEL = theory.ring(8, 8, jumps=(1,))  # λ_0 = 0


@pytest.mark.parametrize(("m", "zeta"), [(1, 2), (2, 4), (3, 2)])
def test_what_is_proved_holds_in_every_round(m: int, zeta: int) -> None:
    p = theory.complete(6)
    d_1 = 2**15
    rounds = 8
    eta = theory.recommended_step(p, m)
    lambda_0 = theory.least_eigenvalue(p, m)
    gist = theory.make_gist(p, d_1, m, seed=m)
    traces = [theory.train_round(gist, p, zeta, eta) for _ in range(rounds)]
    drift = kernel_drift(p, traces, d_1)
    bound = theory.ProvedBound(lambda_0, drift, eta, zeta)
    V = [trace.deviation() for trace in traces]
    errors = [
        float((p.y - output).norm())
        for output in (traces[0].before, *(trace.after for trace in traces))
    ]
    for t in range(rounds):
        assert errors[t + 1] <= bound.contraction * errors[t] + bound.kappa * V[t]
        assert errors[t + 1] ** 2 <= bound.at(t + 1, errors[0] ** 2, max(V))
    assert bound.contraction < 1
    assert errors[-1] < 0.5 * errors[0]
    assert (bound.neighbourhood(max(V)) > 0) == (m > 1)
    settled = bound.neighbourhood(max(V)) ** 0.5  # a round leaves it as it is
    assert bound.contraction * settled + bound.kappa * max(V) == pytest.approx(settled)
    assert drift <= lambda_0 / 2


@pytest.mark.parametrize("seed", range(3))
def test_the_error_follows_its_limit_and_the_theorems_bound_is_above_where_it_began(
    seed: int,
) -> None:
    """The error is compared with that at infinite width.

    The bound is 35 to 6e8 times the error, so that to stay under it shows nothing.
    """
    bases = [theory.complete(4, 0), theory.ring(6, 6, 1), theory.ring(9, 9, 2, (1,))]
    base = bases[seed]
    m = 2 + seed
    zeta = 1 + seed
    d_1 = 512
    rounds = 6
    assert all(assumption.holds for assumption in theory.check(base, m))
    eta = theory.recommended_step(base, m)
    runs = [
        theory.train(theory.make_gist(base, d_1, m, s), base, rounds, zeta, eta) for s in range(5)
    ]
    error = torch.stack(runs).mean(dim=0)
    start = theory.expected_initial_error(base, m)
    # Lemma init_error_bound
    assert start <= float(base.y.abs().max()) ** 2 * base.n + base.d / m**2 * base.mass
    for printed in (True, False):
        bound = theory.Bound(base, theory.Hyperparameters(d_1, m, zeta, eta), printed=printed)
        assert 0 < bound.contraction < 1
        assert bound.at(rounds, start) > start > float(error[-1])
    limit = theory.limit_error(base, m, zeta, eta, rounds)
    torch.testing.assert_close(error[1:], limit[1:], rtol=0.15, atol=0)


def test_the_error_lemma_fails_at_large_width() -> None:
    """ι_0 of y = 0 tends to a positive number.

    What the lemma allows does not reach it, for any γ.
    """
    base = theory.complete(3)
    zeta = 2

    def falls(m: int, d_1: int, seeds: int) -> tuple[dict[str, float], Tensor, Tensor]:
        """The limits; what every seed's round measures, and what the lemma allows.

        γ is 0.9.
        """
        eta = theory.recommended_step(base, m) / 4
        lambda_0 = theory.least_eigenvalue(base, m)
        p = theory.Problem(base.x, base.edge_index, torch.zeros(base.n, dtype=torch.float64))
        numbers = theory.Hyperparameters(d_1, m, zeta, eta)
        bound = theory.Bound(p, numbers, gamma=0.9, printed=True)
        measured = []
        allowed = []
        for seed in range(seeds):
            trace = theory.train_round(theory.make_gist(p, d_1, m, seed), p, zeta, eta)
            begin, end = (float(disagreement(trace.outputs[:, k])) / m**2 for k in (0, zeta))
            measured.append(begin - end)
            local = float(trace.local_errors(p.y)[:, :zeta].sum())
            allowed.append(eta * 0.9 * lambda_0 / (2 * m) * local + bound.round_error)
        return (
            theory.limit_error_term(p, m, zeta, eta),
            torch.tensor(measured),
            torch.tensor(allowed),
        )

    limit, measured, _ = falls(3, 3 * 2**11, 100)
    spread = float(measured.std()) / math.sqrt(len(measured))
    assert abs(float(measured.mean()) - limit["fall"]) <= 3 * spread < 0.4 * limit["fall"]
    limit, measured, allowed = falls(2, 2**19, 4)
    assert measured.sum() > 2 * allowed.sum()
    assert limit["fall"] > 2 * float(allowed.mean())
    assert limit["fall"] > 10 * limit["allowed"]  # γ = 1, d_1 = ∞


@pytest.mark.parametrize("from_zero", [True, False])
def test_the_error_lemma_fails_for_every_y_once_the_error_is_small(from_zero: bool) -> None:
    """ι_t is at least (2/γ)(2 − ηλ_0) times what the lemma allows as d_1 → ∞.

    It is so for y = ŷ(0), and for ±1 in the end.
    """
    base = theory.complete(6)
    m = 2
    zeta = 3
    d_1 = 2**14
    eta = theory.recommended_step(base, m)
    lambda_0 = theory.least_eigenvalue(base, m)
    if from_zero:
        gist, p = start_without_error(base, d_1, m, 5)
    else:
        gist, p = theory.make_gist(base, d_1, m, 5), base
        theory.train(gist, p, 25, zeta, eta)
    fall = 0.0
    allowed = 0.0
    for _ in range(10):
        trace = theory.train_round(gist, p, zeta, eta)
        assert float((p.y - trace.before).norm()) < 0.1 * trace.deviation()
        start = disagreement(trace.outputs[:, 0])
        end = disagreement(trace.outputs[:, zeta])
        fall += float(start - end) / m**2
        # What the lemma allows is taken with γ = 1.
        allowed += eta * lambda_0 / (2 * m) * float(trace.local_errors(p.y)[:, :zeta].sum())
    assert fall >= 0.97 * 2 * (2 - eta * lambda_0) * allowed


def test_the_bounds_are_those_of_the_paper_and_of_its_proof() -> None:
    square = theory.complete(7)
    m = 3
    zeta = 4
    eta = 0.6
    d_1 = 1000
    gamma = 0.25
    # One more feature is zero, so that d is not n.
    p = theory.Problem(
        torch.cat([square.x, torch.zeros(7, 1).double()], dim=1), square.edge_index, square.y
    )
    n = 7
    d = 8
    mass = 28.0
    lambda_0 = theory.least_eigenvalue(p, m)
    assert p.mass == pytest.approx(mass)
    numbers = theory.Hyperparameters(d_1, m, zeta, eta)
    printed, right = (theory.Bound(p, numbers, gamma, printed=flag) for flag in (True, False))
    shrunk = (1 - eta * lambda_0 / 2) ** zeta
    alpha = (1 - gamma) * (1 - shrunk)
    for bound in (printed, right):
        assert bound.contraction == pytest.approx(gamma + (1 - gamma) * shrunk)
        assert bound.alpha == pytest.approx(alpha)
        assert bound.neighbourhood == pytest.approx(bound.round_error / alpha)
        assert bound.at(3, 2.0) == pytest.approx(
            (1 - alpha) ** 3 * 2.0 + bound.round_error * (1 + (1 - alpha) + (1 - alpha) ** 2)
        )
    common = eta * 2**2 * zeta * n * d / (gamma * 3**2 * d_1)
    assert printed.round_error == pytest.approx(64 * mass * common)
    assert right.round_error == pytest.approx(16 * mass**2 / lambda_0 * common)


def test_values_that_no_bound_takes_are_refused() -> None:
    p = theory.complete(6)
    numbers = theory.Hyperparameters(100, 2, 1, theory.recommended_step(p, 2))
    for call, parts in (
        (lambda: theory.Bound(p, numbers, gamma=1.5), ("gamma is 1.5",)),
        (
            lambda: theory.Bound(p, replace(numbers, step_size=1e6)),
            ("step_size is 1e+06", "recommended_step"),
        ),
        (lambda: theory.Bound(p, numbers, gamma=1e-320), ("beyond what a float64 holds",)),
        (lambda: theory.predict(p, 2, 0, 9), ("local_steps is 0",)),
        (lambda: theory.predict(p, 2, 1, 1), ("width is 1",)),
        (lambda: theory.Bound(NO_KERNEL, numbers), ("λ_0 is 0", "check")),
        (lambda: theory.ProvedBound(0.03, 0.01, 5000.0, 1), ("step_size is 5000",)),
        (lambda: theory.ProvedBound(0.1, 0.5, 0.1, 1), ("ρ is 0.5",)),
        (lambda: theory.train_round(theory.make_gist(p, 64, 2), p, 0, 0.1), ("local_steps is 0",)),
    ):
        with refused(*parts):
            call()
