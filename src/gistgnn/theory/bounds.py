"""The lemmas about local training and the theorem (appendix C.3 to C.5), corrected.

A bound that we prove is here, too.

docs/paper/theory-corrections.md derives every correction; docs/paper/theory-bounds.md
has our proofs. Where a docstring says "printed", the paper has that in its place. The theorem is
neither proved nor refuted: Lemma error_term_bound, on which its proof rests, fails.
"""

import math

import torch

from gistgnn import InputError
from gistgnn.theory import problem as problems
from gistgnn.theory.problem import (
    Hyperparameters,
    Problem,
    least_eigenvalue,
    limit_kernel,
    output_covariance,
)


def proof_step(problem: Problem, m: int) -> float:
    """Return η = λ_0 / (24 n ‖Ā²‖_{1,1}), which Lemma local_converge allows.

    Printed: λ_0 / (n² ‖Ā²‖_{1,1}).
    """
    return least_eigenvalue(problem, m) / (24.0 * problem.n * problem.mass)


def limit_error_term(
    problem: Problem, sub_gcns: int, local_steps: int, step_size: float
) -> dict[str, float]:
    """Return both sides of Lemma error_term_bound at t = 0, y = 0 and d_1 → ∞.

    This is an example of how the lemma fails.
    """
    # "fall" is ι_0 = (m−1)/m² tr(S − Q^2ζ S), the fall of the sub-GCNs' disagreement, with Q = I −
    # ηG^∞ and S = ĀKĀ; "allowed" is what is left of the right-hand side for γ = 1, (ηλ_0/2m) Σ_k
    # tr(Q^2k S).
    m = sub_gcns
    Q = torch.eye(problem.n, dtype=torch.float64) - step_size * limit_kernel(problem, m)
    S = output_covariance(problem)
    left = [
        float(torch.trace(torch.linalg.matrix_power(Q, 2 * k) @ S)) for k in range(local_steps + 1)
    ]
    allowed = step_size * least_eigenvalue(problem, m) / (2 * m) * sum(left[:-1])
    return {"fall": (m - 1) / m**2 * (left[0] - left[-1]), "allowed": allowed}


class Bound:
    """The theorem: E‖y − ŷ(t)‖² <= (1 − α)^t E‖y − ŷ(0)‖² + (error of a round) / α.

    Args:
        problem: the graph, the features and the targets.
        numbers: d_1, m, ζ and η.
        gamma: γ in (0, 1), which is free.
        printed: whether to use the constants as the paper prints them; else they are corrected.

    Attributes:
        alpha: α = (1 − γ)(1 − (1 − ηλ_0/2)^ζ).
        contraction: 1 − α, the factor of a round.
        round_error: the error that every round adds (Lemma error_term_bound): 16 η (m−1)² ζ
            ‖Ā²‖²_{1,1} n d / (γ λ_0 m² d_1). Printed: 64 η (m−1)² ζ ‖Ā²‖_{1,1} n d / (γ m² d_1).
        neighbourhood: `round_error` / α, the limit of the bound as t → ∞.
    """

    def __init__(
        self,
        problem: Problem,
        numbers: Hyperparameters,
        gamma: float = 0.5,
        printed: bool = False,
    ) -> None:
        m = numbers.sub_gcns
        step_size = numbers.step_size
        lambda_0 = problems.check_lambda_0(least_eigenvalue(problem, m))
        problems.check_gamma(gamma)
        if not 0 < step_size * lambda_0 / 2 < 1:
            expected = (
                f"expected one in (0, 2 / λ_0 = {2 / lambda_0:.3g}), such as "
                "recommended_step returns"
            )
            raise InputError(f"step_size is {step_size:.3g}, {expected}")
        # Without cancellation for small steps:
        self.alpha = (1.0 - gamma) * -math.expm1(
            numbers.local_steps * math.log1p(-step_size * lambda_0 / 2.0)
        )
        self.contraction = 1.0 - self.alpha
        numerator = step_size * (m - 1) ** 2 * numbers.local_steps * problem.n * problem.d
        common = numerator / (gamma * m**2 * numbers.d_1)
        self.round_error = common * (
            64.0 * problem.mass if printed else 16.0 * problem.mass**2 / lambda_0
        )
        self.neighbourhood = self.round_error / self.alpha if self.alpha > 0 else math.inf
        if not math.isfinite(self.neighbourhood):
            values = f"gamma = {gamma:.3g}, step_size = {step_size:.3g} and d_1 = {numbers.d_1:.3g}"
            raise InputError(
                f"the bound is beyond what a float64 holds at {values}: give less extreme values"
            )

    def at(self, t: int, initial: float) -> float:
        """Return the bound on E‖y − ŷ(t)‖² after t rounds, given E‖y − ŷ(0)‖²."""
        left = self.contraction**t
        return left * initial + self.neighbourhood * (1.0 - left)


class ProvedBound:
    """A bound on the error, for the rounds in which ‖Ĝ − G^∞‖ <= ρ < λ_0 (proved).

    It says ‖y − ŷ(t)‖ <= c^t ‖y − ŷ(0)‖ + κ V (1 − c^t) / (1 − c).

    Ĝ is the kernel of a local step (`secant_kernel`), and V_t² = (1/m) Σ_j ‖ŷ(t) − ŷ^(j)(t, 0)‖².
    The bound is a posteriori, because ρ is measured in the run. In a round, ‖y − ŷ(t+1)‖ <= c ‖y −
    ŷ(t)‖ + κ V_t.

    Args:
        rho: ρ, the largest ‖Ĝ − G^∞‖ of the run's steps.

    Attributes:
        contraction: c = (1 − η(λ_0 − ρ))^ζ, the factor of the norm in a round.
        kappa: κ = c − (1 − ηλ_0)^ζ, the share of the deviations of the sub-GCNs that a round
            leaves.
    """

    def __init__(self, lambda_0: float, rho: float, step_size: float, local_steps: int) -> None:
        problems.check_lambda_0(lambda_0)
        if not 0 <= rho < lambda_0:
            advice = "increase the width or stop earlier; ρ grows with the rounds"
            raise InputError(f"ρ is {rho:.3g}, expected less than λ_0 = {lambda_0:.3g}: {advice}")
        if not 0 < step_size * lambda_0 <= 1:
            most = f"1/λ_max(G^∞), which is below 1/λ_0 = {1 / lambda_0:.3g}"
            raise InputError(f"step_size is {step_size}, expected one above 0 and at most {most}")
        self.contraction = (1.0 - step_size * (lambda_0 - rho)) ** local_steps
        self.kappa = self.contraction - (1.0 - step_size * lambda_0) ** local_steps

    def neighbourhood(self, deviation: float) -> float:
        """Return (κV / (1 − c))², the limit of the bound.

        V bounds all V_t, or is √E V_t² for the mean.
        """
        return (self.kappa * deviation / (1.0 - self.contraction)) ** 2

    def at(self, t: int, initial: float, deviation: float) -> float:
        """Return the bound on ‖y − ŷ(t)‖², given ‖y − ŷ(0)‖² and V."""
        left = self.contraction**t
        return (
            left * math.sqrt(initial) + math.sqrt(self.neighbourhood(deviation)) * (1.0 - left)
        ) ** 2
