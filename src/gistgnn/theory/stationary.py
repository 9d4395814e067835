"""What GIST adds to the error, to leading order in 1/d_1: not a bound, but what it tends to.

Let M̃_r^(j) = M_r^(j) − 1/m, K_r = Ā(⟨x̂_i, x̂_i'⟩ I_ri I_ri')Ā be a neuron's part of the kernel, G_j = (1/d_1) Σ_r
M_r^(j) K_r, and h_r = (a_r/√d_1) Āσ(X̂θ_r) its part of the output, so that ŷ^(j) − ŷ = Σ_r M̃_r^(j) h_r. Where the
sub-GCNs' errors are their deviations from ŷ, that is where e = y − ŷ is small, a round of ζ steps adds, with
Q = I − ηG^∞ and to first order in G_j − G^∞,

    e(t+1) = Q^ζ e(t) + ν_t,    ν_t = (η/m) Σ_j Σ_k Q^(ζ−1−k) (G_j − G^∞) Q^k (ŷ^(j) − ŷ).

ν_t is a sum over pairs of neurons of w_rr' = Σ_j M̃_r^(j) M̃_r'^(j), which is I{r, r' in one sub-GCN} − 1/m: of mean
zero, of variance (m−1)/m², and uncorrelated between pairs. The masks of rounds are independent, so that the
covariances are

    N = E ν_t ν_t' = η² (m−1)/(m⁴ d_1) E_θ[L(K_θ) S L(K_θ)'],    L(K) = Σ_k Q^(ζ−1−k) K Q^k,    S = ĀKĀ (`output_gram`),

of what a round adds, and C = Q^ζ C Q^ζ + N of what remains as t → ∞. Left out are pairs r = r' and (G_j − G^∞)², of
order 1/d_1²; neurons that change their sign within a round, a per cent or two of it on complete:6; and, while e(t) is
large, how far the finite kernels contract it from how G^∞ does, a part of e(t) that falls as d_1^-1/2. The expectation
over θ ~ N(0, I) is of four indicators, which has no closed form: it is sampled.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.theory.kernel import least_eigenvalue, limit_kernel
from gistgnn.theory.lemmas import check_lambda_0, check_stable, limit_error
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
        left = self.kept ** torch.arange(rounds + 1, device=self.kept.device)[:, None]
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
    """Return about E‖y − ŷ(t)‖², [rounds + 1]: that of infinite width (`limit_error`), and what GIST adds.

    While the first is the larger part, what is left out of it is of order d_1^-1/2, and more than the second.

    For the arguments and errors see `stationary_error`.
    """
    added = stationary_error(problem, d_1, sub_gcns, local_steps, step_size, samples=samples)
    return limit_error(problem, sub_gcns, local_steps, step_size, rounds) + added.after(rounds)


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

    It does not depend on y, is 0 for m = 1, and falls as 1/d_1. Where η stays and ηζλ is small, what a round adds is
    proportional to ζ²(m−1)/m⁴, and what remains to ζ(m−1)/m³, for λ is proportional to 1/m.

    Args:
        problem: Ā and X̂.
        d_1: the width.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, below 2/λ_max(G^∞).
        samples: of θ; the relative standard error is about 1/√samples.
        seed: of the samples.

    Raises:
        InputError: λ_0 is 0, or η is not below 2/λ_max(G^∞), so that nothing is stationary.
    """
    m = sub_gcns
    check_lambda_0(least_eigenvalue(problem, m))
    check_stable(problem, m, step_size)
    values, vectors = torch.linalg.eigh(limit_kernel(problem, m))
    q = 1.0 - step_size * values
    S = vectors.T @ problem.a_bar @ output_gram(problem.x_hat) @ problem.a_bar @ vectors
    N = step_size**2 * (m - 1) / (m**4 * d_1) * _expected(problem, vectors, _mixed(q, local_steps), S, samples, seed)
    return Stationary(N, q.abs() ** (2 * local_steps))


def _mixed(q: Tensor, count: int) -> Tensor:
    """Σ_k q_a^(ζ−1−k) q_b^k, [n, n], by doubling: f_2k = f_k (q_a^k + q_b^k), f_(k+1) = q_a^k + q_b f_k."""
    found, power = torch.zeros_like(q[:, None] * q), torch.ones_like(q)
    for bit in f"{count:b}":
        found, power = found * (power[:, None] + power), power * power
        if bit == "1":
            found, power = power[:, None] + q * found, power * q
    return found


def _expected(problem: Problem, vectors: Tensor, mixed: Tensor, S: Tensor, samples: int, seed: int) -> Tensor:
    """The diagonal of E_θ[L(K_θ) S L(K_θ)'] in the eigenvectors of G^∞, [n]."""
    rng = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(S[0])
    rows, inner = vectors.T @ problem.a_bar, problem.x_hat @ problem.x_hat.T
    size = max(1, _AT_ONCE // problem.n**2)
    for first in range(0, samples, size):
        shape = (problem.d, min(size, samples - first))
        theta = torch.randn(shape, dtype=torch.float64, generator=rng, device="cpu").to(S.device)
        active = (problem.x_hat @ theta >= 0).to(S.dtype).T  # [s, n]
        half = rows * active[:, None]  # [s, n, n]
        L = mixed * (half @ inner @ half.transpose(1, 2))
        total += ((L @ S) * L).sum(dim=(0, 2))
    return total / samples
