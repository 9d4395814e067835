"""What the theory predicts for a problem before it is trained: the second half of `gistgnn theory check`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gistgnn.theory.a_priori import GuaranteedWidth
from gistgnn.theory.argument_checks import check_lambda_0, check_settings, check_stable
from gistgnn.theory.bounds import Bound
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue
from gistgnn.theory.leading_order import LeadingOrder
from gistgnn.theory.lemmas import expected_initial_error, kernel_width, local_factor, proof_step, recommended_step
from gistgnn.theory.problem import Problem

SAMPLED_NODES = 500  # the most nodes for `leading`, whose cost for each sample is the cube of their number
SAMPLES = 2000


@dataclass(frozen=True)
class Prediction:
    """The prediction of E‖y − ŷ(t)‖² at one setting."""

    sub_gcns: int
    local_steps: int
    width: int
    gamma: float
    lambda_0: float  # λ_min(G^∞)
    lambda_max: float  # λ_max(G^∞)
    step_size: float
    proof_step: float  # the largest η that the proof allows
    initial: float  # E‖y − ŷ(0)‖², exact
    local_factor: float | None  # 1 − ηλ_0/2, for a local step (Lemma local_converge); None if η > 1/λ_max(G^∞)
    round_factor: float  # γ + (1 − γ)(1 − ηλ_0/2)^ζ, for a round (the theorem)
    limit_factor: float | None  # (1 − ηλ_0)^2ζ, for a round as d_1 → ∞; None if η > 1/λ_max(G^∞)
    neighbourhood: float  # the theorem's bound as t → ∞, with the printed constants
    corrected_neighbourhood: float  # the same with corrected constants
    leading: float | None  # the plateau for rounds well below d_1 (heuristic); None if n > `SAMPLED_NODES`
    kernel_width: int  # a d_1 at which Lemma PD_GISTK holds
    theorem_width: int  # the d_1 that the proof of the theorem needs; that proof has a gap
    guaranteed_width: int | None  # a d_1 that keeps ρ <= λ_0/2 in T rounds (proved); None if η > 1/λ_max(G^∞)
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
        """Predict the training of a problem; if step_size is None, η is `recommended_step`.

        Raises:
            InputError: λ_0 is 0, η is not below 2/λ_max(G^∞), or `check_settings` or `Bound` refuses a value.
        """
        check_settings(sub_gcns, local_steps, width, step_size, gamma, rounds, delta)
        m, zeta = sub_gcns, local_steps
        lambda_0, lambda_max = check_lambda_0(least_eigenvalue(problem, m)), greatest_eigenvalue(problem, m)
        eta = recommended_step(problem, m) if step_size is None else check_stable(problem, m, step_size)
        contracts = eta * lambda_max <= 1.0
        printed, corrected = (Bound(problem, m, zeta, eta, width, gamma, printed=flag) for flag in (True, False))
        initial, small = expected_initial_error(problem, m), problem.n <= SAMPLED_NODES
        return cls(
            *(m, zeta, width, gamma, lambda_0, lambda_max, eta),
            proof_step=proof_step(problem, m),
            initial=initial,
            local_factor=local_factor(eta, lambda_0) if contracts else None,
            round_factor=printed.contraction,
            limit_factor=(1.0 - eta * lambda_0) ** (2 * zeta) if contracts else None,
            neighbourhood=printed.neighbourhood,
            corrected_neighbourhood=corrected.neighbourhood,
            leading=LeadingOrder.of(problem, width, m, zeta, eta, samples=SAMPLES).remaining if small else None,
            kernel_width=kernel_width(problem, m, rounds, delta),
            theorem_width=corrected.width(rounds, delta, initial),
            guaranteed_width=GuaranteedWidth(problem, m, zeta, eta, rounds, delta).width if contracts else None,
            rounds=rounds,
            delta=delta,
        )


def rounds_to(share: float, factor: float) -> int | None:
    """Return how many rounds bring an error to a share of itself, if each multiplies it by factor; None if never."""
    if factor >= 1.0:
        return None
    return 1 if factor <= share else math.ceil(math.log(share) / math.log(factor))
