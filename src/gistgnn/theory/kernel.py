"""The GIST kernel G = ĀHĀ: at infinite width, for given weights, and for a step of gradient descent (appendix C.4)."""

import torch
from torch import Tensor

from gistgnn.theory.gram import gram, limit_gram, output_gram
from gistgnn.theory.problem import Problem


def limit_kernel(problem: Problem, m: int) -> Tensor:
    """Return G^∞ = Ā H^∞ Ā, [n, n] (section 4)."""
    return problem.a_bar @ limit_gram(problem.x_hat, m) @ problem.a_bar


def least_eigenvalue(problem: Problem, m: int) -> float:
    """Return λ_0 = λ_min(G^∞), proportional to 1/m; 0 if it is below n ε λ_max(G^∞), the rounding error of float64.

    λ_0 >= λ_min(H^∞) λ_min(Ā)². The paper has λ_min(Ā) without the square, which is wrong (docs/explanation/theory.md).
    """
    least, greatest = float(problem.spectrum[0]), float(problem.spectrum[-1])
    return least / m if least > problem.n * torch.finfo(torch.float64).eps * greatest else 0.0


def greatest_eigenvalue(problem: Problem, m: int) -> float:
    """Return λ_max(G^∞), proportional to 1/m."""
    return float(problem.spectrum[-1]) / m


def recommended_step(problem: Problem, m: int) -> float:
    """Return η = 1 / (λ_max(G^∞) + λ_0 / 2), at least 10^5 times `proof_step`.

    While all kernels of a sub-GCN are within λ_0 / 2 of G^∞, a step contracts y − ŷ^(j) by 1 − ηλ_0 / 2.
    """
    return 1.0 / (greatest_eigenvalue(problem, m) + least_eigenvalue(problem, m) / 2.0)


def kernel(problem: Problem, theta: Tensor, d_1: int) -> Tensor:
    """Return G^(j)(t, t', k) = Ā H(t, t', k) Ā, [n, n], for the weights [d, d^(j)] of the active neurons."""
    return problem.a_bar @ gram(problem.x_hat, theta, d_1) @ problem.a_bar


def secant_kernel(problem: Problem, before: Tensor, after: Tensor, d_1: int) -> Tensor:
    """Return the kernel Ĝ of a step of gradient descent: ŷ(k+1) − ŷ(k) = η Ĝ (y − ŷ(k)) exactly, [n, n].

    Ĥ_ij = <x̂_i, x̂_j> (1/d_1) Σ_r s_ri I{<x̂_j, θ_r> >= 0}, where s_ri in [0, 1] is the slope of σ between
    <x̂_i, θ_r> before and after the step. Ĝ is not symmetric. before and after are the weights of the active neurons at
    steps k and k + 1, [d, d^(j)].
    """
    z, w = problem.x_hat @ before, problem.x_hat @ after
    active = (z >= 0).to(z.dtype)
    slope = torch.where(w == z, active, (w.relu() - z.relu()) / torch.where(w == z, 1.0, w - z))
    H = problem.x_hat @ problem.x_hat.T * (slope @ active.T) / d_1
    return problem.a_bar @ H @ problem.a_bar


def output_covariance(problem: Problem) -> Tensor:
    """Return S = ĀKĀ, [n, n]: ŷ(0) has covariance S/m², and in the limit d_1 → ∞ ŷ^(j)(0, 0) has S/m."""
    return problem.a_bar @ output_gram(problem.x_hat) @ problem.a_bar


def expected_initial_error(problem: Problem, m: int) -> float:
    """Return E‖y − ŷ(0)‖² = ‖y‖² + tr S / m² exactly (ours); it does not depend on d_1."""
    return float(problem.y.square().sum() + torch.trace(output_covariance(problem)) / m**2)
