"""The lemmas about local training (appendix C.4) and about merging (C.5), with corrected constants.

docs/explanation/theory-corrections.md derives every correction. Where a docstring says "printed", the paper has that in
its place. The two decompositions of a variance hold exactly, for any weights: every neuron is in one sub-GCN, so
ŷ = (1/m) Σ_j ŷ^(j). The paper prints f = Σ_j f^(j), with which neither holds.
"""

import math

import torch
from torch import Tensor

from gistgnn.theory.argument_checks import check_fraction, check_lambda_0, least_width
from gistgnn.theory.kernel import least_eigenvalue, limit_kernel, output_covariance
from gistgnn.theory.problem import Problem


def kernel_width(problem: Problem, m: int, rounds: int, delta: float) -> int:
    """Return a width d_1 at which Lemma PD_GISTK holds: λ_min(G^(j)) >= λ_0 / 2 with probability 1 − δ.

    It is the least d_1 with T m n² (2 exp(−d_1 λ_0² / 128 n²) + exp(−d_1 λ_0 / 480 m n)) <= δ, the failure probability
    in the proof of the lemma. It grows with λ_0^-2; the λ_0^-1 of the statement does not follow from the proof.

    Raises:
        InputError: λ_0 is not positive, or δ is not in (0, 1).
    """
    lambda_0, n = check_lambda_0(least_eigenvalue(problem, m)), problem.n
    check_fraction("delta", delta)

    def enough(d_1: int) -> bool:
        far = 2.0 * math.exp(-d_1 * lambda_0**2 / (128.0 * n**2)) + math.exp(-d_1 * lambda_0 / (480.0 * m * n))
        return rounds * m * n**2 * far <= delta

    return least_width(enough)


def local_factor(step_size: float, lambda_0: float) -> float:
    """Return 1 − ηλ_0 / 2, the factor by which each local step shrinks ‖y − ŷ^(j)‖² (Lemma local_converge)."""
    return 1.0 - step_size * lambda_0 / 2.0


def radius(problem: Problem, m: int) -> float:
    """Return R = λ_0 / (192 n), how far a neuron may move (Lemma local_converge); printed: λ_0 / (96 n)."""
    return least_eigenvalue(problem, m) / (192.0 * problem.n)


def proof_step(problem: Problem, m: int) -> float:
    """Return η = λ_0 / (24 n ‖Ā²‖_{1,1}), which Lemma local_converge allows; printed: λ_0 / (n² ‖Ā²‖_{1,1})."""
    return least_eigenvalue(problem, m) / (24.0 * problem.n * problem.mass)


def movement_bound(problem: Problem, step_size: float, local_errors: Tensor, d_1: int) -> float:
    """Return 2η √(n / d_1) Σ_k ‖y − ŷ^(j)(t, k)‖, a bound on how far a neuron moves in a round (Lemma local_converge).

    Printed: without the 2, which is ‖Ā‖. It holds if ‖x̂_i‖ <= 1. local_errors are ‖y − ŷ^(j)(t, k)‖², [ζ].
    """
    return 2.0 * step_size * math.sqrt(problem.n / d_1) * float(local_errors.sqrt().sum())


def disagreement(outputs: Tensor) -> Tensor:
    """Return Σ_j Σ_{j' < j} ‖ŷ^(j) − ŷ^(j')‖² of the sub-GCNs' outputs [m, n]."""
    return (outputs[:, None] - outputs[None]).square().sum() / 2


def decomposed_error(y: Tensor, outputs: Tensor) -> Tensor:
    """Return the right-hand side of Lemma global_error_decompose, ‖y − ŷ(t + 1)‖², from the ŷ^(j)(t, ζ), [m, n].

    (1/m) Σ_j ‖y − ŷ^(j)(t, ζ)‖² − (1/m²) Σ_{j' < j} ‖ŷ^(j)(t, ζ) − ŷ^(j')(t, ζ)‖².
    """
    m = len(outputs)
    return (y - outputs).square().sum() / m - disagreement(outputs) / m**2


def total_deviation(outputs: Tensor) -> Tensor:
    """Return the right-hand side of Lemma subnetwork_deviation, Σ_j ‖ŷ(t) − ŷ^(j)(t, 0)‖², from ŷ^(j)(t, 0), [m, n]."""
    return disagreement(outputs) / len(outputs)


def expected_deviation(problem: Problem, theta: Tensor, m: int) -> float:
    """Return E‖ŷ(t) − ŷ^(j)(t, 0)‖² over the masks, given Θ_t [d, d_1]: (m−1)/(m² d_1) ‖Ā σ(X̂Θ)‖_F² exactly (ours)."""
    hidden = problem.a_bar @ (problem.x_hat @ theta).relu()
    return float(torch.sum(hidden**2)) * (m - 1) / (m**2 * theta.shape[1])


def deviation_bound(n: int, m: int) -> float:
    """Return 16 n (m − 1) / m², a bound on E‖ŷ(t) − ŷ^(j)(t, 0)‖² ("lemma 24" of appendix C.5).

    It holds while the weights stay within R <= 1/2 of their start and Σ_r <θ_0,r, x̂_i>² <= (2 − R²) d_1 for all i. The
    latter has probability at least 1 − n exp(−d_1 / 32). Printed: 4 n (m − 1) / m², without ‖Ā‖² = 4.
    """
    return 16.0 * n * (m - 1) / m**2


def limit_error_term(problem: Problem, sub_gcns: int, local_steps: int, step_size: float) -> dict[str, float]:
    """Return both sides of Lemma error_term_bound at t = 0, y = 0 and d_1 → ∞: an example of how the lemma fails.

    "fall" is ι_0 = (m−1)/m² tr(S − Q^2ζ S), by which the disagreement of the sub-GCNs falls, with Q = I − ηG^∞ and
    S = ĀKĀ; "allowed" is what is left of the right-hand side for γ = 1, (ηλ_0/2m) Σ_k tr(Q^2k S).
    """
    m = sub_gcns
    Q = torch.eye(problem.n, dtype=torch.float64) - step_size * limit_kernel(problem, m)
    S = output_covariance(problem)
    left = [float(torch.trace(torch.linalg.matrix_power(Q, 2 * k) @ S)) for k in range(local_steps + 1)]
    allowed = step_size * least_eigenvalue(problem, m) / (2 * m) * sum(left[:-1])
    return {"fall": (m - 1) / m**2 * (left[0] - left[-1]), "allowed": allowed}


def initial_error_bound(problem: Problem, m: int) -> float:
    """Return C² n + (d / m²) ‖Ā²‖_{1,1}, a bound on E‖y − ŷ(0)‖² if ‖x̂_i‖ <= 1 (Lemma init_error_bound)."""
    return float(problem.y.abs().max()) ** 2 * problem.n + problem.d / m**2 * problem.mass
