"""A width that guarantees, before training, that ρ <= λ_0/2 in T rounds, so that `ProvedBound` holds (ours, proved).

docs/explanation/theory-bounds.md has the proof. With α = ‖Ā‖, χ = ‖X̂‖ and μ = max_i Σ_i' |<x̂_i, x̂_i'>|:

- If no neuron has moved further than R, then ‖Ĝ − G^∞‖ <= α²μ (3s + 2 √(2/π) R / m) in all steps of all rounds, except
  with probability mT(n² + 2n) exp(−2 d_1 s²) over Θ_0 and the masks.
- If ρ <= λ_0/2, no neuron moves further than (2αχ / λ_0√d_1) (E_0 + T (1 − (1 − ηλ_0)^ζ) D), where E_0 bounds
  ‖y − ŷ(0)‖ and D bounds all ‖ŷ(t) − ŷ^(j)(t, 0)‖.

By induction over the steps both hold if d_1 is so large that the second is at most the R of the first.
"""

import math

import torch

from gistgnn import InputError
from gistgnn.theory.argument_checks import check_fraction, check_lambda_0, check_sizes, least_width
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue, output_covariance
from gistgnn.theory.problem import Problem


class GuaranteedWidth:
    """The bounds of the two lemmas at one setting, each with probability 1 − δ/4 or more.

    Args:
        problem: the graph, X and y, with λ_0 > 0.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, at most 1/λ_max(G^∞).
        rounds: T.
        delta: δ, the probability that the guarantee fails.

    Attributes:
        lambda_0: λ_0 = λ_min(G^∞).
        radius: R = √(π/2) m λ_0 / (8α²μ), which gives neurons that change their sign λ_0/4 of ρ.

    Raises:
        InputError: λ_0 is 0, η is not in (0, 1/λ_max(G^∞)], δ is not in (0, 1), or m, ζ or T is out of range.
    """

    def __init__(
        self, problem: Problem, sub_gcns: int, local_steps: int, step_size: float, rounds: int, delta: float
    ) -> None:
        check_sizes(sub_gcns=sub_gcns, local_steps=local_steps, rounds=rounds)
        self.lambda_0 = check_lambda_0(least_eigenvalue(problem, sub_gcns))
        check_fraction("delta", delta)
        most = 1.0 / greatest_eigenvalue(problem, sub_gcns)
        if not 0 < step_size <= most:
            raise InputError(f"step_size is {step_size:.3g}, expected one above 0, at most 1/λ_max = {most:.3g}")
        self.problem, self.sub_gcns, self.local_steps = problem, sub_gcns, local_steps
        self.step_size, self.rounds, self.delta = step_size, rounds, delta
        alpha = float(torch.linalg.matrix_norm(problem.a_bar, ord=2))
        self._start = math.sqrt(float(output_covariance(problem).trace()))
        self._both_norms = alpha * float(torch.linalg.matrix_norm(problem.x_hat, ord=2))  # αχ
        # α²μ: a kernel whose entries each differ by a share s of <x̂_i, x̂_i'> differs by at most α²μs in norm
        self._scale = alpha**2 * float((problem.x_hat @ problem.x_hat.T).abs().sum(dim=1).max())
        self.radius = math.sqrt(math.pi / 2) * sub_gcns * self.lambda_0 / (8.0 * self._scale)

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
        return 2.0 * self._both_norms / (self.lambda_0 * math.sqrt(d_1)) * path

    def guarantees(self, d_1: int) -> bool:
        """Return whether this width keeps ρ <= λ_0/2 in all T rounds, with probability 1 − δ."""
        return self.movement_bound(d_1) <= self.radius and self.kernel_bound(d_1, 0.0) <= self.lambda_0 / 4.0

    @property
    def width(self) -> int:
        """The least width that `guarantees`; InputError if it is beyond 2^120."""
        return least_width(self.guarantees)

    def _hidden_bound(self, d_1: int) -> float:
        """B, the bound on ‖Āσ(X̂Θ_t)‖_F / √d_1 while no neuron moves beyond R; √tr S bounds its mean at the start."""
        return self._start + self._both_norms * (math.sqrt(2.0 * math.log(4.0 / self.delta) / d_1) + self.radius)
