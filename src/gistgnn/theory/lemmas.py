"""Right-hand sides of the lemmas with the constants that their proofs give (appendix C.4, C.5).

Each is as it is right, and says what is printed where that differs; docs/theory.md has the derivations.
"""

import math

import torch

from gistgnn.errors import InputError
from gistgnn.theory.kernel import greatest_eigenvalue, least_eigenvalue, limit_kernel
from gistgnn.theory.limit import output_gram
from gistgnn.theory.problem import Problem

A_BAR_NORM = 2.0  # ‖Ā‖ of any graph with an edge


def radius(problem: Problem, m: int) -> float:
    """Return R = λ_0 / (192 n), how far a neuron may move from its start for Lemma local_converge.

    Printed: λ_0 / (96 n), from a proof that loses a factor n in I_2; with it, 64 n R has to be at most λ_0 / 3.
    """
    return least_eigenvalue(problem, m) / (192.0 * problem.n)


def proof_step(problem: Problem, m: int) -> float:
    """Return η = λ_0 / (24 n ‖Ā²‖_{1,1}), the largest step of the proof of Lemma local_converge.

    Printed: λ_0 / (n² ‖Ā²‖_{1,1}), which with the proof's own factor 4 n² ‖Ā²‖_{1,1} of η² leaves nothing of λ_0. The
    factor is 4 n ‖Ā²‖_{1,1}, and λ_0 / 6 is left for it.
    """
    return least_eigenvalue(problem, m) / (24.0 * problem.n * problem.mass)


def recommended_step(problem: Problem, m: int) -> float:
    """Return η = 1 / (λ_max(G^∞) + λ_0 / 2), 10^5 times the proof's and more.

    While all kernels of a sub-GCN are within λ_0 / 2 of G^∞, a step contracts y − ŷ^(j) by 1 − ηλ_0 / 2, and its square
    by the square of that, better than Lemma local_converge says.
    """
    return 1.0 / (greatest_eigenvalue(problem, m) + least_eigenvalue(problem, m) / 2.0)


def local_factor(step_size: float, lambda_0: float) -> float:
    """Return 1 − ηλ_0 / 2, by which each local step shrinks ‖y − ŷ^(j)‖² (Lemma local_converge)."""
    return 1.0 - step_size * lambda_0 / 2.0


def deviation(n: int, m: int) -> float:
    """Return 16 n (m − 1) / m², a bound on E‖ŷ(t) − ŷ^(j)(t, 0)‖² while weights stay within R <= 1/2 of their start.

    It is given that Σ_r <θ_0,r, x̂_i>² <= (2 − R²) d_1 for all i, which has probability at least 1 − n exp(−d_1 / 32).

    Printed: 4 n (m − 1) / m², of a network without Ā; ‖Ā‖² = 4 is missing. `identities.expected_deviation` is exact.
    """
    return 16.0 * n * (m - 1) / m**2


def initial_error(problem: Problem, m: int) -> float:
    """Return C² n + (d / m²) ‖Ā²‖_{1,1}, the bound of Lemma init_error_bound on E‖y − ŷ(0)‖², where ‖x̂_i‖ <= 1.

    The proof says E[ŷ_i(0)²] = 0 where it uses E[ŷ_i(0)] = 0.
    """
    C = float(problem.y.abs().max())
    return C**2 * problem.n + problem.d / m**2 * problem.mass


def expected_initial_error(problem: Problem, m: int) -> float:
    """Return E‖y − ŷ(0)‖² = ‖y‖² + tr(Ā K Ā) / m² exactly, K as in `output_gram`; it does not depend on d_1."""
    K = output_gram(problem.x_hat)
    return float(problem.y.square().sum() + torch.trace(problem.a_bar @ K @ problem.a_bar) / m**2)


def limit_error(problem: Problem, m: int, local_steps: int, step_size: float, rounds: int) -> torch.Tensor:
    """Return E‖y − ŷ(t)‖² of t = 0 ... T as d_1 → ∞, [T + 1].

    All kernels are G^∞ then, so that merging changes nothing: y − ŷ(t) = (I − ηG^∞)^ζt (y − ŷ(0)), and ŷ(0) is a
    Gaussian of covariance ĀKĀ / m², K as in `output_gram`.

    Args:
        problem: X, Ā and y.
        m: the number of sub-GCNs.
        local_steps: ζ.
        step_size: η.
        rounds: T.
    """
    values, vectors = torch.linalg.eigh(limit_kernel(problem, m))
    covariance = problem.a_bar @ output_gram(problem.x_hat) @ problem.a_bar / m**2
    weights = (vectors.T @ problem.y).square() + (vectors.T @ covariance @ vectors).diagonal()
    kept = (1.0 - step_size * values).abs() ** (2 * local_steps)
    return (kept ** torch.arange(rounds + 1, device=kept.device)[:, None]) @ weights


def movement(problem: Problem, step_size: float, local_errors: torch.Tensor, d_1: int) -> float:
    """Return 2η √(n / d_1) Σ_k ‖y − ŷ^(j)(t, k)‖, which no neuron of a sub-GCN moves further than in a round.

    Printed without the 2, which is ‖Ā‖ in the bound of the gradient.

    Args:
        problem: with ‖x̂_i‖ <= 1.
        step_size: η.
        local_errors: ‖y − ŷ^(j)(t, k)‖² of k = 0 ... ζ − 1, [ζ].
        d_1: the width.
    """
    return A_BAR_NORM * step_size * math.sqrt(problem.n / d_1) * float(local_errors.sqrt().sum())


def kernel_width(problem: Problem, m: int, rounds: int, delta: float) -> int:
    """Return a width at which Lemma PD_GISTK holds: λ_min(G^(j)) >= λ_0 / 2 with probability 1 − δ.

    It is the least d_1 with T m n² (2 exp(−d_1 λ_0² / 128 n²) + exp(−d_1 λ_0 / 480 m n)) <= δ, the failure probability
    of the lemma's own proof. That grows with λ_0^-2; the λ_0^-1 of its statement does not follow from it.

    Raises:
        InputError: λ_0 is not positive, or δ not in (0, 1).
    """
    lambda_0, n = check_lambda_0(least_eigenvalue(problem, m)), problem.n
    check_delta(delta)

    def enough(d_1: int) -> bool:
        far = 2.0 * math.exp(-d_1 * lambda_0**2 / (128.0 * n**2)) + math.exp(-d_1 * lambda_0 / (480.0 * m * n))
        return rounds * m * n**2 * far <= delta

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def check_lambda_0(lambda_0: float) -> float:
    """Return λ_0, or raise InputError where it is not positive."""
    if not lambda_0 > 0:
        raise InputError(f"λ_0 is {lambda_0:.3g}, expected a positive number: see which assumption `check` says fails")
    return lambda_0


def check_stable(problem: Problem, m: int, step_size: float) -> float:
    """Return η, or raise InputError where gradient descent diverges at it, even at infinite width."""
    stable = 2.0 / greatest_eigenvalue(problem, m)
    if not 0 < step_size < stable:
        raise InputError(
            f"step_size is {step_size:.3g}, expected one above 0 and below 2 / λ_max(G^∞) = {stable:.3g}, where "
            "training begins to diverge at any width"
        )
    return step_size


def check_gamma(gamma: float) -> float:
    """Return γ, or raise InputError where it is not between 0 and 1."""
    if not 0 < gamma < 1:
        raise InputError(f"gamma is {gamma}, expected a number between 0 and 1")
    return gamma


def check_delta(delta: float) -> float:
    """Return δ, or raise InputError where it is not a probability between 0 and 1."""
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}, expected a probability between 0 and 1")
    return delta
