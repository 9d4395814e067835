"""The GIST kernel: infinite, finite for given weights, and how far they are apart (appendix C.4)."""

import math

import torch
from torch import Tensor

from gistgnn.theory.limit import angles, limit_gram
from gistgnn.theory.problem import Problem


def limit_kernel(problem: Problem, m: int) -> Tensor:
    """Return G^∞ = Ā H^∞ Ā, [n, n] (section 4)."""
    return problem.a_bar @ limit_gram(problem.x_hat, m) @ problem.a_bar


def least_eigenvalue(problem: Problem, m: int) -> float:
    """Return λ_0 = λ_min(G^∞), proportional to 1/m; 0 where float64 cannot tell it from 0, which is n ε λ_max(G^∞).

    It is at least λ_min(H^∞) λ_min(Ā)²; the paper has λ_min(Ā) without the square, which is wrong (docs/theory.md).
    """
    least, greatest = float(problem.spectrum[0]), float(problem.spectrum[-1])
    return least / m if least > problem.n * torch.finfo(torch.float64).eps * greatest else 0.0


def greatest_eigenvalue(problem: Problem, m: int) -> float:
    """Return λ_max(G^∞), proportional to 1/m."""
    return float(problem.spectrum[-1]) / m


def gram(x_hat: Tensor, theta: Tensor, d_1: int) -> Tensor:
    """Return H(t, t', k)_ij = <x̂_i, x̂_j> (1/d_1) Σ_r I{<x̂_i, θ_r> >= 0, <x̂_j, θ_r> >= 0}, [n, n].

    Args:
        x_hat: [n, d].
        theta: [d, d^(j)], the neurons r that the mask M^(j)_t leaves active.
        d_1: the width of the whole GCN.
    """
    active = (x_hat @ theta >= 0).to(x_hat.dtype)
    return x_hat @ x_hat.T * (active @ active.T) / d_1


def kernel(problem: Problem, theta: Tensor, d_1: int) -> Tensor:
    """Return G^(j)(t, t', k) = Ā H(t, t', k) Ā, [n, n], for the active neurons' weights [d, d^(j)]."""
    return problem.a_bar @ gram(problem.x_hat, theta, d_1) @ problem.a_bar


def secant_kernel(problem: Problem, before: Tensor, after: Tensor, d_1: int) -> Tensor:
    """Return the kernel Ĝ of a step of gradient descent: ŷ(k+1) − ŷ(k) = η Ĝ (y − ŷ(k)) exactly, [n, n].

    The paper splits the neurons into those that keep their sign and the others (S_i, S_i^⊥). One matrix has both:
    Ĥ_ij = <x̂_i, x̂_j> (1/d_1) Σ_r s_ri I{<x̂_j, θ_r> >= 0}, where s_ri in [0, 1] is the slope of σ between <x̂_i, θ_r>
    before and after; it is the indicator where the sign stays. Ĝ is not symmetric.

    Args:
        problem: of n nodes.
        before: [d, d^(j)], the active neurons' weights at k.
        after: [d, d^(j)], at k + 1.
        d_1: the width of the whole GCN.
    """
    z, w = problem.x_hat @ before, problem.x_hat @ after
    active = (z >= 0).to(z.dtype)
    slope = torch.where(w == z, active, (w.relu() - z.relu()) / torch.where(w == z, 1.0, w - z))
    H = problem.x_hat @ problem.x_hat.T * (slope @ active.T) / d_1
    return problem.a_bar @ H @ problem.a_bar


def expected_gram_deviation(x_hat: Tensor, m: int, d_1: int) -> float:
    """Return E‖H^(j)(t, 0, 0) − H^∞‖_F² = (1/d_1) Σ_ij <x̂_i, x̂_j>² q_ij (1 − q_ij), over Θ_0 and the masks, exactly.

    A neuron counts in entry ij with probability q_ij = (π − ∠(x̂_i, x̂_j)) / (2π m).

    Args:
        x_hat: [n, d].
        m: the number of sub-GCNs.
        d_1: the width.
    """
    q = (math.pi - angles(x_hat)) / (2.0 * math.pi * m)
    return float(((x_hat @ x_hat.T) ** 2 * q * (1.0 - q)).sum() / d_1)
