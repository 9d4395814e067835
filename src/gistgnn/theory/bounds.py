"""The bound of the theorem (appendix C.3, C.5), and one of the same form that is proved (ours).

The theorem is neither proved nor refuted: Lemma error_term_bound, on which its proof rests, fails
(docs/explanation/theory.md). The proved bound is a posteriori, because ρ is measured in the run. Let Ĝ be the kernel of
a local step (`secant_kernel`), ‖Ĝ − G^∞‖ <= ρ < λ_0 in all steps of all sub-GCNs, and η <= 1/λ_max(G^∞). With
q = 1 − ηλ_0, c = (q + ηρ)^ζ and κ = c − q^ζ,

    ‖y − ŷ(t+1)‖ <= c ‖y − ŷ(t)‖ + κ V_t,    V_t² = (1/m) Σ_j ‖ŷ(t) − ŷ^(j)(t, 0)‖².

The squared neighbourhood (κV / (1 − c))² falls as 1/d_1 at a fixed t; it is zero for one sub-GCN.
"""

import math
from collections.abc import Iterable
from itertools import pairwise

import torch

from gistgnn import InputError
from gistgnn.theory.argument_checks import check_fraction, check_lambda_0
from gistgnn.theory.kernel import least_eigenvalue, limit_kernel, secant_kernel
from gistgnn.theory.model import Trace
from gistgnn.theory.problem import Problem


class Bound:
    """The theorem: E‖y − ŷ(t)‖² <= (1 − α)^t E‖y − ŷ(0)‖² + (error of a round) / α.

    Args:
        problem: n, d, ‖Ā²‖_{1,1} and λ_0.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, for the gradient of ½‖y − ŷ‖².
        d_1: the width.
        gamma: γ in (0, 1), which is free.
        printed: whether to use the constants as the paper prints them; else they are corrected.

    Attributes:
        alpha: α = (1 − γ)(1 − (1 − ηλ_0/2)^ζ).
        contraction: 1 − α = γ + (1 − γ)(1 − ηλ_0/2)^ζ, the factor of a round.
        round_error: the error that every round adds (Lemma error_term_bound): 16 η (m−1)² ζ ‖Ā²‖²_{1,1} n d /
            (γ λ_0 m² d_1). Printed: 64 η (m−1)² ζ ‖Ā²‖_{1,1} n d / (γ m² d_1).
        neighbourhood: `round_error` / α, the limit of the bound as t → ∞: the sum of the errors of all rounds.

    Raises:
        InputError: λ_0 is not positive, γ or ηλ_0 / 2 is not in (0, 1), or the bound does not fit in a float64.
    """

    def __init__(
        self,
        problem: Problem,
        sub_gcns: int,
        local_steps: int,
        step_size: float,
        d_1: int,
        gamma: float = 0.5,
        printed: bool = False,
    ) -> None:
        self.lambda_0 = lambda_0 = check_lambda_0(least_eigenvalue(problem, sub_gcns))
        check_fraction("gamma", gamma)
        if not 0 < step_size * lambda_0 / 2 < 1:
            expected = f"expected one in (0, 2 / λ_0 = {2 / lambda_0:.3g}), such as recommended_step returns"
            raise InputError(f"step_size is {step_size:.3g}, {expected}")
        self.problem, self.sub_gcns, self.d_1, self.printed = problem, sub_gcns, d_1, printed
        self.path = step_size * local_steps  # ηζ
        # Without cancellation for small steps:
        self.alpha = (1.0 - gamma) * -math.expm1(local_steps * math.log1p(-step_size * lambda_0 / 2.0))
        self.contraction = 1.0 - self.alpha
        common = step_size * (sub_gcns - 1) ** 2 * local_steps * problem.n * problem.d / (gamma * sub_gcns**2 * d_1)
        self.round_error = common * (64.0 * problem.mass if printed else 16.0 * problem.mass**2 / lambda_0)
        self.neighbourhood = self.round_error / self.alpha if self.alpha > 0 else math.inf
        if not math.isfinite(self.neighbourhood):
            values = f"gamma = {gamma:.3g}, step_size = {step_size:.3g} and d_1 = {d_1:.3g}"
            raise InputError(f"the bound is beyond what a float64 holds at {values}: give less extreme values")

    def at(self, t: int, initial: float) -> float:
        """Return the bound on E‖y − ŷ(t)‖² after t rounds, given E‖y − ŷ(0)‖²."""
        left = self.contraction**t
        return left * initial + self.neighbourhood * (1.0 - left)

    def width(self, rounds: int, delta: float, initial: float) -> int:
        """Return the width d_1 that the proof needs: hypothesis (1) at t = 0, with R = λ_0 / (192 n) (printed: 96).

        The hypothesis is (4Tηζ / δα) √(n / d_1) E‖y − ŷ(0)‖ + T B <= R. initial is E‖y − ŷ(0)‖², and delta the
        probability δ that the bound fails.

        Raises:
            InputError: δ is not in (0, 1), or so small that the width does not fit in a float64.
        """
        check_fraction("delta", delta)
        m, n = self.sub_gcns, self.problem.n
        radius = self.lambda_0 / ((96.0 if self.printed else 192.0) * n)
        scale = (1.0 if self.printed else 2.0) * 4.0 * rounds * self.path / (delta * self.alpha) * math.sqrt(n)
        drift = (1.0 if self.printed else 4.0) * self.path * n * math.sqrt(8.0 * (m - 1) * rounds / (m * delta))
        noise = math.sqrt(self.round_error) * math.sqrt(self.d_1)
        # Solve a / √d_1 + b / d_1 <= R: √d_1 is at least the larger root, (a + √(a² + 4bR)) / 2R.
        a = scale * math.sqrt(initial) + rounds * drift + (rounds * noise if self.printed else 0.0)
        b = 0.0 if self.printed else rounds * scale * noise
        root = (a + math.sqrt(a) * math.sqrt(a + 4.0 * b * radius / a)) / (2.0 * radius)
        if not root < 1e150:
            raise InputError(f"delta is {delta:.3g}: the width is beyond what a float64 holds; give a larger one")
        return math.ceil(root**2)


class ProvedBound:
    """‖y − ŷ(t)‖ <= c^t ‖y − ŷ(0)‖ + κ V (1 − c^t) / (1 − c), for the rounds in which ‖Ĝ − G^∞‖ <= ρ < λ_0.

    Args:
        lambda_0: λ_min(G^∞).
        rho: ρ, the largest ‖Ĝ − G^∞‖ of the run's steps, by `kernel_drift`, or a bound on it by `GuaranteedWidth`.
        step_size: η, at most 1/λ_max(G^∞).
        local_steps: ζ.

    Attributes:
        contraction: c = (1 − η(λ_0 − ρ))^ζ, the factor of the norm in a round; the squared error has the factor c².
        kappa: κ = c − (1 − ηλ_0)^ζ, the share of the deviations of the sub-GCNs that a round leaves; 0 if ρ is 0.

    Raises:
        InputError: λ_0 is not positive, ρ is not below λ_0, or η is not in (0, 1/λ_0].
    """

    def __init__(self, lambda_0: float, rho: float, step_size: float, local_steps: int) -> None:
        check_lambda_0(lambda_0)
        if not 0 <= rho < lambda_0:
            advice = "increase the width or stop earlier; ρ grows with the rounds"
            raise InputError(f"ρ is {rho:.3g}, expected less than λ_0 = {lambda_0:.3g}: {advice}")
        if not 0 < step_size * lambda_0 <= 1:
            most = f"1/λ_max(G^∞), which is below 1/λ_0 = {1 / lambda_0:.3g}"
            raise InputError(f"step_size is {step_size}, expected one above 0 and at most {most}")
        self.contraction = (1.0 - step_size * (lambda_0 - rho)) ** local_steps
        self.kappa = self.contraction - (1.0 - step_size * lambda_0) ** local_steps

    def neighbourhood(self, deviation: float) -> float:
        """Return (κV / (1 − c))², the limit of the bound; V bounds all V_t, or is √E V_t² for the mean."""
        return (self.kappa * deviation / (1.0 - self.contraction)) ** 2

    def after(self, error: float, deviation: float) -> float:
        """Return the bound on ‖y − ŷ(t + 1)‖, given ‖y − ŷ(t)‖ and V_t."""
        return self.contraction * error + self.kappa * deviation

    def at(self, t: int, initial: float, deviation: float) -> float:
        """Return the bound on ‖y − ŷ(t)‖², given ‖y − ŷ(0)‖² and V."""
        left = self.contraction**t
        return (left * math.sqrt(initial) + math.sqrt(self.neighbourhood(deviation)) * (1.0 - left)) ** 2


def kernel_drift(problem: Problem, traces: Iterable[Trace], d_1: int) -> float:
    """Return ρ, the largest ‖Ĝ − G^∞‖ over the steps of all sub-GCNs in some rounds."""
    worst = 0.0
    for trace in traces:
        G = limit_kernel(problem, len(trace.weights))
        for before, after in (step for path in trace.weights for step in pairwise(path)):
            off = torch.linalg.matrix_norm(secant_kernel(problem, before, after, d_1) - G, ord=2)
            worst = max(worst, float(off))
    return worst
