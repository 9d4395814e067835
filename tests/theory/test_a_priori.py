"""The width that guarantees lazy training: its parts against runs, and its growth."""

import math
from typing import Any

import pytest

from gistgnn.theory import (
    Bound,
    GuaranteedWidth,
    ProvedBound,
    complete,
    least_eigenvalue,
    make_gist,
    recommended_step,
    train_round,
)
from gistgnn.theory.bounds import kernel_drift
from gistgnn.theory.kernel import greatest_eigenvalue
from gistgnn.theory.lemmas import expected_initial_error
from gistgnn.theory.model import global_weights
from tests.helpers.refusals import refused
from tests.theory.problems import orthogonal, problem


@pytest.mark.parametrize(("m", "zeta", "seed"), [(1, 2, 0), (2, 1, 1), (2, 4, 2), (3, 2, 3)])
def test_its_bounds_hold_in_runs_that_stay_lazy(m: int, zeta: int, seed: int) -> None:
    p, d_1, rounds = orthogonal(), 2**17, 6
    lazy = GuaranteedWidth(p, m, zeta, recommended_step(p, m), rounds, delta=0.1)
    gist = make_gist(p, d_1, m, seed)
    start = global_weights(gist)
    drift, moved, deviation = 0.0, 0.0, 0.0
    for t in range(rounds):
        blocks = gist.blocks(t)
        trace = train_round(gist, p, zeta, lazy.step_size, keep_weights=True)
        if t == 0:
            assert float((p.y - trace.before).norm()) <= lazy.start_bound(d_1)
        drift = max(drift, kernel_drift(p, [trace], d_1))
        deviation = max(deviation, float((trace.outputs[:, 0] - trace.before).norm(dim=1).max()))
        for (block,), path in zip(blocks, trace.weights, strict=True):
            moved = max(moved, *(float((theta - start[:, block]).norm(dim=0).max()) for theta in path))
    assert drift <= least_eigenvalue(p, m) / 2  # the premise of the bound on the movement
    assert deviation <= lazy.deviation_bound(d_1)
    assert 0 < moved <= lazy.movement_bound(d_1)
    assert drift <= lazy.kernel_bound(d_1, moved)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_the_guaranteed_width_is_the_least(m: int) -> None:
    p = problem()
    lazy = GuaranteedWidth(p, m, 2, recommended_step(p, m), 20, delta=0.1)
    width = lazy.width
    assert lazy.guarantees(width)
    assert not lazy.guarantees(width - 1)
    # what it guarantees is what `ProvedBound` needs, with ρ = λ_0/2
    rho = lazy.kernel_bound(width, lazy.movement_bound(width))
    assert rho <= lazy.lambda_0 / 2 * (1 + 1e-12)
    assert ProvedBound(lazy.lambda_0, rho * (1 - 1e-9), lazy.step_size, 2).contraction < 1


def test_it_grows_as_the_square_of_the_rounds_and_is_far_below_that_of_the_theorem() -> None:
    p = complete(6)
    eta = recommended_step(p, 2)
    one, ten = (GuaranteedWidth(p, 2, 1, eta, rounds, 0.1).width for rounds in (10_000, 100_000))
    assert 100 < ten / one < 200  # T², and a logarithm
    hundred = GuaranteedWidth(p, 2, 1, eta, 100, 0.1).width
    assert hundred < 1e-9 * Bound(p, 2, 1, eta, hundred).width(100, 0.1, expected_initial_error(p, 2))
    alone = [GuaranteedWidth(p, 1, 1, recommended_step(p, 1), rounds, 0.1).width for rounds in (100, 10_000)]
    assert alone[1] == alone[0]  # one sub-GCN never deviates: its neurons come to rest


def test_refused_settings() -> None:
    p = orthogonal()
    good: dict[str, Any] = {
        "sub_gcns": 2,
        "local_steps": 1,
        "step_size": recommended_step(p, 2),
        "rounds": 10,
        "delta": 0.1,
    }
    for name, value, message in [
        ("step_size", 1.01 / greatest_eigenvalue(p, 2), "1/λ_max"),
        ("step_size", math.nan, "step_size is nan"),
        ("delta", 1.0, "delta is 1.0"),
        ("rounds", 0, "rounds is 0"),
        ("sub_gcns", 0, "sub_gcns is 0"),
    ]:
        with refused(message):
            GuaranteedWidth(p, **{**good, name: value})
    with refused("λ_0 is 0"):
        GuaranteedWidth(problem(8, 8, 0, 1), **good)
