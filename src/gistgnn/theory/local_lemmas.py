"""Corrected constants of the lemmas about local training, PD_GISTK and local_converge (appendix C.4)."""

import math

from torch import Tensor

from gistgnn.theory.argument_checks import check_fraction, check_lambda_0, least_width
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue
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

    found = least_width(enough)
    assert found is not None
    return found


def local_factor(step_size: float, lambda_0: float) -> float:
    """Return 1 − ηλ_0 / 2, the factor by which each local step shrinks ‖y − ŷ^(j)‖² (Lemma local_converge)."""
    return 1.0 - step_size * lambda_0 / 2.0


def radius(problem: Problem, m: int) -> float:
    """Return R = λ_0 / (192 n), how far a neuron may move from its start (Lemma local_converge).

    Printed: λ_0 / (96 n), from a proof that loses a factor n in I_2. With that factor, 64 n R must be at most λ_0 / 3.
    """
    return least_eigenvalue(problem, m) / (192.0 * problem.n)


def proof_step(problem: Problem, m: int) -> float:
    """Return η = λ_0 / (24 n ‖Ā²‖_{1,1}), the largest step size that the proof of Lemma local_converge allows.

    Printed: λ_0 / (n² ‖Ā²‖_{1,1}). With the factor 4 n² ‖Ā²‖_{1,1} that the printed proof has before η², nothing of λ_0
    is left. The right factor is 4 n ‖Ā²‖_{1,1}, and λ_0 / 6 is left for it.
    """
    return least_eigenvalue(problem, m) / (24.0 * problem.n * problem.mass)


def recommended_step(problem: Problem, m: int) -> float:
    """Return η = 1 / (λ_max(G^∞) + λ_0 / 2), at least 10^5 times `proof_step`.

    While all kernels of a sub-GCN are within λ_0 / 2 of G^∞, a step contracts y − ŷ^(j) by 1 − ηλ_0 / 2, and its square
    by the square of that factor. Lemma local_converge claims less.
    """
    return 1.0 / (greatest_eigenvalue(problem, m) + least_eigenvalue(problem, m) / 2.0)


def movement_bound(problem: Problem, step_size: float, local_errors: Tensor, d_1: int) -> float:
    """Return 2η √(n / d_1) Σ_k ‖y − ŷ^(j)(t, k)‖, a bound on how far a neuron moves in a round (Lemma local_converge).

    Printed: without the 2, which is ‖Ā‖ in the bound of the gradient. It holds if ‖x̂_i‖ <= 1. local_errors, [ζ], are
    ‖y − ŷ^(j)(t, k)‖² for k = 0 ... ζ − 1.
    """
    return 2.0 * step_size * math.sqrt(problem.n / d_1) * float(local_errors.sqrt().sum())
