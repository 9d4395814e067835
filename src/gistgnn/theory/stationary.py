"""What GIST adds to the error, to leading order in 1/d_1: not a bound, but what it tends to.

Let M̃_r^(j) = M_r^(j) − 1/m, K_r = Ā(⟨x̂_i, x̂_i'⟩ I_ri I_ri')Ā be a neuron's part of the kernel, G_j = (1/d_1) Σ_r
M_r^(j) K_r, and h_r = (a_r/√d_1) Āσ(X̂θ_r) its part of the output, so that ŷ^(j) − ŷ = Σ_r M̃_r^(j) h_r. Over ζ steps,
with Q = I − ηG^∞ and to first order in G_j − G^∞ (but for a term in e(t), which vanishes with it), the mean over j of
the errors is

    e(t+1) = Q^ζ e(t) + ν_t,    ν_t = (η/m) Σ_j Σ_k Q^(ζ−1−k) (G_j − G^∞) Q^k (ŷ^(j) − ŷ).

ν_t is a sum over pairs of neurons of w_rr' = Σ_j M̃_r^(j) M̃_r'^(j), which is I{r, r' in one sub-GCN} − 1/m: of mean
zero, of variance (m−1)/m², and uncorrelated between pairs. The masks of rounds are independent, so that the
covariances are

    N = E ν_t ν_t' = η² (m−1)/(m⁴ d_1) E_θ[L(K_θ) S L(K_θ)'],    L(K) = Σ_k Q^(ζ−1−k) K Q^k,    S = ĀKĀ (`output_gram`),

of what a round adds, and C = Q^ζ C Q^ζ + N of what remains as t → ∞. Pairs r = r' and G_j − G^∞ squared are of order
1/d_1². The expectation over θ ~ N(0, I) is of four indicators, which has no closed form: it is sampled.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.theory.kernel import least_eigenvalue, limit_kernel
from gistgnn.theory.lemmas import check_lambda_0, limit_error
from gistgnn.theory.limit import output_gram
from gistgnn.theory.problem import Problem

SAMPLES = 20_000
_AT_ONCE = 2**22  # numbers of the sampled kernels that are held at the same time


@dataclass(frozen=True, eq=False)
class Stationary:
    """The error that GIST adds, to leading order in 1/d_1.

    Attributes:
        noise: the diagonal of N in the eigenvectors of G^∞, [n].
        kept: how much of each a round keeps, (1 − ηλ_i)^2ζ, [n].
    """

    noise: Tensor
    kept: Tensor

    @property
    def added(self) -> float:
        """tr N, E‖y − ŷ(1)‖² where y = ŷ(0)."""
        return float(self.noise.sum())

    @property
    def remaining(self) -> float:
        """tr C, the error neighbourhood."""
        return float((self.noise / (1.0 - self.kept)).sum())

    def after(self, rounds: int) -> Tensor:
        """Return what 0, 1, ... rounds have added to the error, [rounds + 1]."""
        left = self.kept ** torch.arange(rounds + 1)[:, None]
        return (1.0 - left) @ (self.noise / (1.0 - self.kept))


def predicted_error(
    problem: Problem,
    d_1: int,
    sub_gcns: int,
    local_steps: int,
    step_size: float,
    rounds: int,
    *,
    samples: int = SAMPLES,
) -> Tensor:
    """Return E‖y − ŷ(t)‖² to leading order in 1/d_1, [rounds + 1]: `limit_error` and what GIST adds.

    For the arguments and errors see `stationary_error`.
    """
    limit = limit_error(problem, sub_gcns, step_size, local_steps * rounds)[::local_steps]
    added = stationary_error(problem, d_1, sub_gcns, local_steps, step_size, samples=samples)
    return limit + added.after(rounds)


def stationary_error(
    problem: Problem,
    d_1: int,
    sub_gcns: int,
    local_steps: int,
    step_size: float,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Stationary:
    """Return what a round adds, and what remains of the error, as d_1 → ∞.

    It does not depend on y. It is 0 for m = 1, and proportional to (m−1)/m⁴ and 1/d_1 where η stays.

    Args:
        problem: Ā and X̂.
        d_1: the width.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, below 2/λ_max(G^∞).
        samples: of θ; the relative standard error is about 1/√samples.
        seed: of the samples.

    Raises:
        InputError: λ_0 is 0, so that nothing is stationary.
    """
    m = sub_gcns
    check_lambda_0(least_eigenvalue(problem, m))
    values, vectors = torch.linalg.eigh(limit_kernel(problem, m))
    q = 1.0 - step_size * values
    powers = q[:, None] ** torch.arange(local_steps)  # [n, ζ]
    mixed = powers.flip(1) @ powers.T  # Σ_k q_a^(ζ−1−k) q_b^k
    S = vectors.T @ problem.a_bar @ output_gram(problem.x_hat) @ problem.a_bar @ vectors
    N = step_size**2 * (m - 1) / (m**4 * d_1) * _expected(problem, vectors, mixed, S, samples, seed)
    return Stationary(N.diagonal(), q ** (2 * local_steps))


def _expected(problem: Problem, vectors: Tensor, mixed: Tensor, S: Tensor, samples: int, seed: int) -> Tensor:
    """E_θ[L(K_θ) S L(K_θ)'] in the eigenvectors of G^∞, [n, n]."""
    rng = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(S)
    rows, inner = vectors.T @ problem.a_bar, problem.x_hat @ problem.x_hat.T
    size = max(1, _AT_ONCE // problem.n**2)
    for first in range(0, samples, size):
        theta = torch.randn(problem.d, min(size, samples - first), dtype=torch.float64, generator=rng)
        active = (problem.x_hat @ theta >= 0).to(S.dtype).T  # [s, n]
        half = rows * active[:, None]  # [s, n, n]
        L = mixed * (half @ inner @ half.transpose(1, 2))
        total += (L @ S @ L.transpose(1, 2)).sum(dim=0)
    return total / samples
