"""What the theory says of training a given problem, before it is trained."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gistgnn.errors import InputError
from gistgnn.theory.bound import Bound
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue
from gistgnn.theory.lemmas import (
    check_lambda_0,
    expected_initial_error,
    kernel_width,
    local_factor,
    proof_step,
    recommended_step,
)
from gistgnn.theory.problem import Problem
from gistgnn.theory.stationary import stationary_error

SAMPLED_NODES = 500  # the cost is the cube of it for every sample


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
        local_factor: 1 − ηλ_0/2 of a local step (Lemma local_converge).
        round_factor: γ + (1 − γ)(1 − ηλ_0/2)^ζ of a round (the theorem).
        limit_factor: (1 − ηλ_0)^2ζ, what a round comes to as d_1 → ∞, where η is at most 1/λ_max(G^∞); else None.
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
    local_factor: float
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
            InputError: λ_0 is 0, fewer neurons than sub-GCNs, η is above 2/λ_max(G^∞), or see `Bound` and
                `kernel_width`.
        """
        if width < sub_gcns:
            raise InputError(f"width is {width}, expected at least m = {sub_gcns}: every sub-GCN needs a neuron")
        lambda_0 = check_lambda_0(least_eigenvalue(problem, sub_gcns))
        lambda_max = greatest_eigenvalue(problem, sub_gcns)
        eta = recommended_step(problem, sub_gcns) if step_size is None else _stable(step_size, lambda_max)
        printed, corrected = (
            Bound.of(problem, sub_gcns, local_steps, eta, width, gamma=gamma, printed=each) for each in (True, False)
        )
        initial = expected_initial_error(problem, sub_gcns)
        return cls(
            sub_gcns=sub_gcns,
            local_steps=local_steps,
            width=width,
            gamma=gamma,
            lambda_0=lambda_0,
            lambda_max=lambda_max,
            step_size=eta,
            proof_step=proof_step(problem, sub_gcns),
            initial=initial,
            local_factor=local_factor(eta, lambda_0),
            round_factor=printed.contraction,
            limit_factor=(1.0 - eta * lambda_0) ** (2 * local_steps) if eta * lambda_max <= 1.0 else None,
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


def _stable(step_size: float, lambda_max: float) -> float:
    if step_size * lambda_max > 2.0:
        raise InputError(
            f"step_size is {step_size:.3g}, expected at most 2 / λ_max(G^∞) = {2 / lambda_max:.3g}: above it training "
            "diverges, at any width"
        )
    return step_size


def rounds_to(share: float, factor: float) -> int:
    """Return how many rounds shrink an error to a share of it, each by a factor in (0, 1)."""
    return math.ceil(math.log(share) / math.log(factor))
