"""A width that guarantees, before training, that ρ <= λ_0/2 in T rounds, so that `ProvedBound` holds (ours, proved).

docs/theory.md has the proof. With α = ‖Ā‖, χ = ‖X̂‖ and μ = max_i Σ_i' |<x̂_i, x̂_i'>|:

- If no neuron has moved further than R, then ‖Ĝ − G^∞‖ <= α²μ (3s + 2 √(2/π) R / m) in all steps of all rounds, except
  with probability mT(n² + 2n) exp(−2 d_1 s²) over Θ_0 and the masks.
- If ρ <= λ_0/2, no neuron moves further than (2αχ / λ_0√d_1) (E_0 + T (1 − (1 − ηλ_0)^ζ) D), where E_0 bounds
  ‖y − ŷ(0)‖ and D bounds all ‖ŷ(t) − ŷ^(j)(t, 0)‖.

By induction over the steps both hold if d_1 is so large that the second is at most the R of the first.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from gistgnn.errors import InputError
from gistgnn.theory.argument_checks import check_fraction, check_lambda_0, check_sizes, least_width
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue, output_covariance
from gistgnn.theory.problem import Problem


@dataclass(frozen=True, eq=False)
class GuaranteedWidth:
    """The bounds of the two lemmas at one setting, each with probability 1 − δ/4 or more.

    Args:
        problem: the graph, X and y, with λ_0 > 0.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, at most 1/λ_max(G^∞).
        rounds: T.
        delta: δ, the probability that the guarantee fails.

    Raises:
        InputError: λ_0 is 0, η is not in (0, 1/λ_max(G^∞)], δ is not in (0, 1), or m, ζ or T is out of range.
    """

    problem: Problem
    sub_gcns: int
    local_steps: int
    step_size: float
    rounds: int
    delta: float

    def __post_init__(self) -> None:
        check_sizes(sub_gcns=self.sub_gcns, local_steps=self.local_steps, rounds=self.rounds)
        check_lambda_0(self.lambda_0)
        check_fraction("delta", self.delta)
        most = 1.0 / greatest_eigenvalue(self.problem, self.sub_gcns)
        if not 0 < self.step_size <= most:
            raise InputError(f"step_size is {self.step_size:.3g}, expected one above 0, at most 1/λ_max = {most:.3g}")

    @property
    def lambda_0(self) -> float:
        """λ_0 = λ_min(G^∞)."""
        return least_eigenvalue(self.problem, self.sub_gcns)

    @property
    def radius(self) -> float:
        """R = √(π/2) m λ_0 / (8α²μ), which gives neurons that change their sign λ_0/4 of ρ."""
        return math.sqrt(math.pi / 2) * self.sub_gcns * self.lambda_0 / (8.0 * self._scale)

    def kernel_bound(self, d_1: int, moved: float) -> float:
        """Return the bound on ρ if no neuron moves further than `moved`."""
        failures = 4.0 * self.sub_gcns * self.rounds * (self.problem.n**2 + 2 * self.problem.n) / self.delta
        s = math.sqrt(math.log(failures) / (2.0 * d_1))
        return self._scale * (3.0 * s + 2.0 * math.sqrt(2.0 / math.pi) * moved / self.sub_gcns)

    def start_bound(self, d_1: int) -> float:
        """Return E_0, the bound on ‖y − ŷ(0)‖."""
        signs = 1.0 + math.sqrt(2.0 * math.log(4.0 / self.delta))
        return float(self.problem.y.norm()) + self._hidden_bound(d_1) / self.sub_gcns * signs

    def deviation_bound(self, d_1: int) -> float:
        """Return D, the bound on ‖ŷ(t) − ŷ^(j)(t, 0)‖ of all rounds and sub-GCNs while no neuron moves beyond R."""
        m = self.sub_gcns
        tail = math.sqrt(math.log(4.0 * m * self.rounds / self.delta) / 2.0)
        return 0.0 if m == 1 else self._hidden_bound(d_1) * (math.sqrt(m - 1) / m + tail)

    def movement_bound(self, d_1: int) -> float:
        """Return how far a neuron moves at most in T rounds while ρ <= λ_0/2."""
        lost = -math.expm1(self.local_steps * math.log1p(-self.step_size * self.lambda_0))
        path = self.start_bound(d_1) + self.rounds * lost * self.deviation_bound(d_1)
        return 2.0 * self._a_norm * self._x_norm / (self.lambda_0 * math.sqrt(d_1)) * path

    def guarantees(self, d_1: int) -> bool:
        """Return whether this width keeps ρ <= λ_0/2 in all T rounds, with probability 1 − δ."""
        return self.movement_bound(d_1) <= self.radius and self.kernel_bound(d_1, 0.0) <= self.lambda_0 / 4.0

    @property
    def width(self) -> int:
        """The least width that `guarantees`.

        Raises:
            InputError: it is beyond 2^120.
        """
        return least_width(self.guarantees)

    @cached_property
    def _a_norm(self) -> float:
        return float(torch.linalg.matrix_norm(self.problem.a_bar, ord=2))

    @cached_property
    def _x_norm(self) -> float:
        return float(torch.linalg.matrix_norm(self.problem.x_hat, ord=2))

    @cached_property
    def _scale(self) -> float:
        """α²μ: a kernel whose entries each differ by a share s of <x̂_i, x̂_i'> differs by at most α²μs in norm."""
        x_hat = self.problem.x_hat
        return self._a_norm**2 * float((x_hat @ x_hat.T).abs().sum(dim=1).max())

    def _hidden_bound(self, d_1: int) -> float:
        """B, the bound on ‖Āσ(X̂Θ_t)‖_F / √d_1 while no neuron moves beyond R."""
        spread = math.sqrt(2.0 * math.log(4.0 / self.delta) / d_1) + self.radius
        return self._start_norm + self._a_norm * self._x_norm * spread

    @cached_property
    def _start_norm(self) -> float:
        """√tr S, at least the mean of ‖Āσ(X̂Θ_0)‖_F / √d_1."""
        return math.sqrt(float(output_covariance(self.problem).trace()))
