"""What the lemmas say about merging the sub-GCNs of a round (appendix C.5).

The first two lemmas decompose a variance. They hold exactly, for any weights, because every neuron is in exactly one
sub-GCN, so that ŷ = (1/m) Σ_j ŷ^(j). The paper prints f = Σ_j f^(j), without 1/m; with the sum, neither lemma holds.
`outputs` are ŷ^(j) of all sub-GCNs at one step, [m, n].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.theory.kernel import least_eigenvalue, limit_kernel, output_covariance
from gistgnn.theory.problem import Problem


def disagreement(outputs: Tensor) -> Tensor:
    """Return Σ_j Σ_{j' < j} ‖ŷ^(j) − ŷ^(j')‖², which counts each pair of sub-GCNs once."""
    return (outputs[:, None] - outputs[None]).square().sum() / 2


def decomposed_error(y: Tensor, outputs: Tensor) -> Tensor:
    """Return the right-hand side of Lemma global_error_decompose, which equals ‖y − ŷ(t + 1)‖².

    (1/m) Σ_j ‖y − ŷ^(j)(t, ζ)‖² − (1/m²) Σ_{j' < j} ‖ŷ^(j)(t, ζ) − ŷ^(j')(t, ζ)‖², from the outputs ŷ^(j)(t, ζ).
    """
    m = len(outputs)
    return (y - outputs).square().sum() / m - disagreement(outputs) / m**2


def total_deviation(outputs: Tensor) -> Tensor:
    """Return the right-hand side of Lemma subnetwork_deviation, Σ_j ‖ŷ(t) − ŷ^(j)(t, 0)‖², from all ŷ^(j)(t, 0)."""
    return disagreement(outputs) / len(outputs)


def expected_deviation(problem: Problem, theta: Tensor, m: int) -> float:
    """Return E‖ŷ(t) − ŷ^(j)(t, 0)‖² over the masks, given Θ_t [d, d_1]: (m−1)/(m² d_1) ‖Ā σ(X̂Θ)‖_F² exactly (ours)."""
    hidden = problem.a_bar @ (problem.x_hat @ theta).relu()
    return float(torch.sum(hidden**2)) * (m - 1) / (m**2 * theta.shape[1])


def deviation_bound(n: int, m: int) -> float:
    """Return 16 n (m − 1) / m², a bound on E‖ŷ(t) − ŷ^(j)(t, 0)‖² ("lemma 24" of appendix C.5).

    It holds while the weights stay within R <= 1/2 of their start and Σ_r <θ_0,r, x̂_i>² <= (2 − R²) d_1 for all i. The
    latter has probability at least 1 − n exp(−d_1 / 32).

    Printed: 4 n (m − 1) / m², from a network without Ā; the factor ‖Ā‖² = 4 is missing.
    """
    return 16.0 * n * (m - 1) / m**2


@dataclass(frozen=True)
class ErrorTerm:
    """Both sides of Lemma error_term_bound, at t = 0, y = 0 and d_1 → ∞: an example of how the lemma fails.

    It fails for every y once ‖y − ŷ(t)‖² is below 3 V_t², with the V_t of `bounds` (docs/theory-corrections.md).
    """

    fall: float  # ι_0, by how much the disagreement of the sub-GCNs falls
    allowed: float  # what is left of the right-hand side for γ = 1


def limit_error_term(problem: Problem, sub_gcns: int, local_steps: int, step_size: float) -> ErrorTerm:
    """Return ι_0 = (m−1)/m² tr(S − Q^2ζ S) and (ηλ_0/2m) Σ_k tr(Q^2k S), with Q = I − ηG^∞ and S = ĀKĀ."""
    m = sub_gcns
    Q = torch.eye(problem.n, dtype=torch.float64) - step_size * limit_kernel(problem, m)
    S = output_covariance(problem)
    left = [float(torch.trace(torch.linalg.matrix_power(Q, 2 * k) @ S)) for k in range(local_steps + 1)]
    allowed = step_size * least_eigenvalue(problem, m) / (2 * m) * sum(left[:-1])
    return ErrorTerm((m - 1) / m**2 * (left[0] - left[-1]), allowed)


def initial_error_bound(problem: Problem, m: int) -> float:
    """Return C² n + (d / m²) ‖Ā²‖_{1,1}, a bound on E‖y − ŷ(0)‖² if ‖x̂_i‖ <= 1 (Lemma init_error_bound).

    The proof says E[ŷ_i(0)²] = 0 where it uses E[ŷ_i(0)] = 0.
    """
    C = float(problem.y.abs().max())
    return C**2 * problem.n + problem.d / m**2 * problem.mass


def expected_initial_error(problem: Problem, m: int) -> float:
    """Return E‖y − ŷ(0)‖² = ‖y‖² + tr(ĀKĀ) / m² exactly (ours); it does not depend on d_1."""
    return float(problem.y.square().sum() + torch.trace(output_covariance(problem)) / m**2)
