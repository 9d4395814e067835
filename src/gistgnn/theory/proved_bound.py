"""A proved bound in place of the theorem (ours): the same form, valid in every run in which ρ < λ_0.

Let Ĝ be the kernel of a local step (`secant_kernel`), ‖Ĝ − G^∞‖ <= ρ < λ_0 in all steps of all sub-GCNs, and
η <= 1/λ_max(G^∞). With q = 1 − ηλ_0, c = (q + ηρ)^ζ and κ = c − q^ζ,

    ‖y − ŷ(t+1)‖ <= c ‖y − ŷ(t)‖ + κ V_t,    V_t² = (1/m) Σ_j ‖ŷ(t) − ŷ^(j)(t, 0)‖²,

which docs/theory.md proves. E V_t² (`expected_deviation`) is about constant, and ρ falls as d_1^-1/2. So the squared
neighbourhood (κV / (1 − c))² falls as 1/d_1; it is zero for one sub-GCN. The bound needs neither γ nor a mean over a.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch

from gistgnn.errors import InputError
from gistgnn.theory.argument_checks import check_lambda_0
from gistgnn.theory.kernel import limit_kernel, secant_kernel
from gistgnn.theory.model import Trace
from gistgnn.theory.problem import Problem


@dataclass(frozen=True)
class ProvedBound:
    """‖y − ŷ(t)‖ <= c^t ‖y − ŷ(0)‖ + κ V (1 − c^t) / (1 − c).

    Args:
        lambda_0: λ_min(G^∞).
        rho: ρ, the largest ‖Ĝ − G^∞‖ of the run, or a bound on it.
        step_size: η, at most 1/λ_max(G^∞).
        local_steps: ζ.

    Raises:
        InputError: λ_0 is not positive, ρ is not below λ_0, or η is not in (0, 1/λ_0].
    """

    lambda_0: float
    rho: float
    step_size: float
    local_steps: int

    def __post_init__(self) -> None:
        check_lambda_0(self.lambda_0)
        if not 0 <= self.rho < self.lambda_0:
            raise InputError(
                f"ρ is {self.rho:.3g}, expected less than λ_0 = {self.lambda_0:.3g}: increase the width; ρ falls as "
                "1 / √width"
            )
        if not 0 < self.step_size * self.lambda_0 <= 1:
            raise InputError(
                f"step_size is {self.step_size}, expected one above 0 and at most 1/λ_max(G^∞), which is below "
                f"1/λ_0 = {1 / self.lambda_0:.3g}"
            )

    @property
    def contraction(self) -> float:
        """c = (1 − η(λ_0 − ρ))^ζ, the factor of the norm in a round; the squared error has the factor c²."""
        return (1.0 - self.step_size * (self.lambda_0 - self.rho)) ** self.local_steps

    @property
    def kappa(self) -> float:
        """κ = c − (1 − ηλ_0)^ζ, the share of the deviations of the sub-GCNs that a round leaves; 0 if ρ is 0."""
        return self.contraction - (1.0 - self.step_size * self.lambda_0) ** self.local_steps

    def neighbourhood(self, deviation: float) -> float:
        """Return (κV / (1 − c))², the squared error that remains as t → ∞.

        Args:
            deviation: V, a bound on all V_t; or √E V_t², for the mean over the masks.
        """
        return (self.kappa * deviation / (1.0 - self.contraction)) ** 2

    def after(self, error: float, deviation: float) -> float:
        """Return the bound on ‖y − ŷ(t + 1)‖, given ‖y − ŷ(t)‖ and V_t."""
        return self.contraction * error + self.kappa * deviation

    def at(self, t: int, initial: float, deviation: float) -> float:
        """Return the bound on ‖y − ŷ(t)‖², given ‖y − ŷ(0)‖² and V."""
        left = self.contraction**t
        return (left * math.sqrt(initial) + math.sqrt(self.neighbourhood(deviation)) * (1.0 - left)) ** 2


def kernel_drift(problem: Problem, traces: list[Trace], d_1: int) -> float:
    """Return ρ, the largest ‖Ĝ − G^∞‖ over the steps of all sub-GCNs in the given rounds.

    Args:
        problem: of n nodes.
        traces: the rounds, trained with keep_weights=True.
        d_1: the width.

    Raises:
        InputError: a trace has no weights.
    """
    worst = 0.0
    for trace in traces:
        if not trace.weights or not all(trace.weights):
            raise InputError("the trace has no weights: train the round with keep_weights=True")
        G = limit_kernel(problem, len(trace.weights))
        for path in trace.weights:
            for before, after in pairwise(path):
                off = torch.linalg.matrix_norm(secant_kernel(problem, before, after, d_1) - G, ord=2)
                worst = max(worst, float(off))
    return worst
