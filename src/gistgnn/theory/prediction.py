"""What the theory says of training a given problem, before it is trained."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gistgnn.errors import InputError
from gistgnn.theory.bound import Bound
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue
from gistgnn.theory.lemmas import (
    check_delta,
    check_gamma,
    check_lambda_0,
    check_stable,
    expected_initial_error,
    kernel_width,
    local_factor,
    proof_step,
    recommended_step,
)
from gistgnn.theory.problem import Problem
from gistgnn.theory.stationary import stationary_error

SAMPLED_NODES = 500  # the cost is the cube of it for every sample
LARGEST = 10**12  # of what is counted


@dataclass(frozen=True)
class Prediction:
    """What is predicted of E‖y − ŷ(t)‖² for a problem, m, ζ and d_1.

    Attributes:
        sub_gcns: m.
        local_steps: ζ.
        width: d_1.
        gamma: γ of the theorem.
        lambda_0: λ_min(G^∞).
        lambda_max: λ_max(G^∞).
        step_size: η, for the gradient of ½‖y − ŷ‖².
        proof_step: the largest η that the proof allows.
        initial: E‖y − ŷ(0)‖², exact.
        local_factor: 1 − ηλ_0/2 of a local step (Lemma local_converge), where η is at most 1/λ_max(G^∞); else None.
        round_factor: γ + (1 − γ)(1 − ηλ_0/2)^ζ of a round (the theorem).
        limit_factor: (1 − ηλ_0)^2ζ, what a round comes to as d_1 → ∞, where it is; else None.
        neighbourhood: what the theorem leaves of the error as t → ∞, as printed.
        corrected_neighbourhood: the same with its constants put right.
        leading: what remains to leading order in 1/d_1 (`stationary_error`); None of more than `SAMPLED_NODES` nodes.
        kernel_width: a d_1 at which Lemma PD_GISTK holds, T = `rounds` and δ = `delta`.
        theorem_width: the d_1 that the theorem's proof asks for.
        rounds: T.
        delta: δ, the probability that the bounds fail.
    """

    sub_gcns: int
    local_steps: int
    width: int
    gamma: float
    lambda_0: float
    lambda_max: float
    step_size: float
    proof_step: float
    initial: float
    local_factor: float | None
    round_factor: float
    limit_factor: float | None
    neighbourhood: float
    corrected_neighbourhood: float
    leading: float | None
    kernel_width: int
    theorem_width: int
    rounds: int
    delta: float

    @classmethod
    def of(
        cls,
        problem: Problem,
        sub_gcns: int,
        local_steps: int,
        width: int,
        *,
        step_size: float | None = None,
        gamma: float = 0.5,
        rounds: int = 100,
        delta: float = 0.1,
    ) -> Prediction:
        """Predict.

        Args:
            problem: of n nodes.
            sub_gcns: m.
            local_steps: ζ.
            width: d_1.
            step_size: η; None: `recommended_step`.
            gamma: γ.
            rounds: T.
            delta: δ.

        Raises:
            InputError: λ_0 is 0, η is not below 2/λ_max(G^∞), or see `check_settings` and `Bound`.
        """
        check_settings(sub_gcns, local_steps, width, step_size, gamma, rounds, delta)
        lambda_0 = check_lambda_0(least_eigenvalue(problem, sub_gcns))
        lambda_max = greatest_eigenvalue(problem, sub_gcns)
        eta = recommended_step(problem, sub_gcns)
        eta = eta if step_size is None else check_stable(problem, sub_gcns, step_size)
        proved = eta * lambda_max <= 1.0
        printed, corrected = (
            Bound.of(problem, sub_gcns, local_steps, eta, width, gamma=gamma, printed=each) for each in (True, False)
        )
        initial = expected_initial_error(problem, sub_gcns)
        settings = (sub_gcns, local_steps, width, gamma, lambda_0, lambda_max, eta)
        return cls(
            *settings,
            proof_step=proof_step(problem, sub_gcns),
            initial=initial,
            local_factor=local_factor(eta, lambda_0) if proved else None,
            round_factor=printed.contraction,
            limit_factor=(1.0 - eta * lambda_0) ** (2 * local_steps) if proved else None,
            neighbourhood=printed.neighbourhood,
            corrected_neighbourhood=corrected.neighbourhood,
            leading=_leading(problem, width, sub_gcns, local_steps, eta),
            kernel_width=kernel_width(problem, sub_gcns, rounds, delta),
            theorem_width=corrected.width(rounds, delta, initial),
            rounds=rounds,
            delta=delta,
        )

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def _leading(problem: Problem, d_1: int, m: int, zeta: int, eta: float) -> float | None:
    if problem.n > SAMPLED_NODES:
        return None
    return stationary_error(problem, d_1, m, zeta, eta, samples=2000).remaining


def check_settings(
    sub_gcns: int, local_steps: int, width: int, step_size: float | None, gamma: float, rounds: int, delta: float
) -> None:
    """Raise InputError where a number is out of range whatever the graph."""
    for name, value in (("sub_gcns", sub_gcns), ("local_steps", local_steps), ("rounds", rounds)):
        if not 1 <= value <= LARGEST:
            raise InputError(f"{name} is {value}, expected an integer from 1 to {LARGEST}")
    if not sub_gcns <= width <= LARGEST:
        raise InputError(f"width is {width}, expected m = {sub_gcns} or more, a neuron for every sub-GCN, to {LARGEST}")
    if step_size is not None and not 0 < step_size < math.inf:
        raise InputError(f"step_size is {step_size:g}, expected a number above 0")
    check_gamma(gamma)
    check_delta(delta)


def rounds_to(share: float, factor: float) -> int | None:
    """Return how many rounds shrink an error to a share of it, each by a factor; None: by none that a float64 tells."""
    if factor >= 1.0:
        return None
    return 1 if factor <= share else math.ceil(math.log(share) / math.log(factor))
