"""What the theory predicts before training.

That is the error that GIST adds, and all numbers of `gistgnn theory check`.

The error that GIST adds is to leading order in 1/d_1 (ours): a heuristic expansion, neither a bound
nor a limit. While e = y − ŷ is small, a round gives e(t+1) = Q^ζ e(t) + ν_t with Q = I − ηG^∞.
docs/paper/theory.md derives ν_t, says what is left out, and

    N = E ν_t ν_t' = η² (m−1)/(m⁴ d_1) E_θ[L(K_θ) S L(K_θ)'],
    L(K) = Σ_k Q^(ζ−1−k) K Q^k,    S = ĀKĀ,

the covariance of the error that a round adds. K_θ = Ā(⟨x̂_i, x̂_i'⟩ I_i I_i')Ā is the part of a
neuron θ in the kernel. If it went on like this, the error would settle at a plateau of covariance C
= Q^ζ C Q^ζ + N: for rounds well below d_1. The expectation over θ ~ N(0, I) has no closed form, so
it is sampled.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gistgnn import InputError
from gistgnn.theory import problem as problems
from gistgnn.theory.bounds import Bound, proof_step
from gistgnn.theory.problem import (
    Hyperparameters,
    Problem,
    greatest_eigenvalue,
    least_eigenvalue,
    limit_kernel,
    output_covariance,
)

SAMPLES = 20_000  # of θ
_NUMBERS_AT_ONCE = 2**22  # the most numbers of the sampled kernels in memory at a time
# The most nodes for which "leading" is computed, as a sample costs the cube of their number.
SAMPLED_NODES = 500
FEWER_SAMPLES = 2000


@dataclass(frozen=True, eq=False)
class LeadingOrder:
    """The error that GIST adds in rounds well below d_1, to leading order in 1/d_1: heuristic."""

    noise: Tensor  # the diagonal of N in the eigenvectors of G^∞, [n]
    # The share of the squared error that a round keeps in each eigenvector, (1 − ηλ_i)^2ζ, [n].
    kept_share: Tensor

    @classmethod
    def of(
        cls,
        problem: Problem,
        numbers: Hyperparameters,
        *,
        samples: int = SAMPLES,
    ) -> "LeadingOrder":
        """Compute N from samples of θ; its relative standard error is about 1/√samples."""
        # N does not depend on y, is 0 for m = 1, and falls as 1/d_1.
        m = numbers.sub_gcns
        local_steps = numbers.local_steps
        step_size = numbers.step_size
        problems.check_lambda_0(least_eigenvalue(problem, m))
        problems.check_stable(problem, m, step_size)
        values, vectors = torch.linalg.eigh(limit_kernel(problem, m))
        q = 1.0 - step_size * values
        mean = _sampled_mean(problem, vectors, _mixed_powers(q, local_steps), samples)
        return cls(
            step_size**2 * (m - 1) / (m**4 * numbers.d_1) * mean, q.abs() ** (2 * local_steps)
        )

    @property
    def added(self) -> float:
        """tr N, which is E‖y − ŷ(1)‖² for y = ŷ(0)."""
        return float(self.noise.sum())

    @property
    def remaining(self) -> float:
        """tr C, the plateau of the error in rounds well below d_1."""
        return float((self.noise / (1.0 - self.kept_share)).sum())

    def after(self, rounds: int) -> Tensor:
        """Return the error that 0, 1, ... rounds have added, [rounds + 1]."""
        left = self.kept_share ** torch.arange(rounds + 1, device=self.kept_share.device)[:, None]
        return (1.0 - left) @ (self.noise / (1.0 - self.kept_share))


def limit_error(
    problem: Problem, m: int, local_steps: int, step_size: float, rounds: int
) -> Tensor:
    """Return E‖y − ŷ(t)‖² for t = 0 ... T as d_1 → ∞, [T + 1]."""
    # Then y − ŷ(t) = (I − ηG^∞)^ζt (y − ŷ(0)), where ŷ(0) is Gaussian with covariance ĀKĀ / m².
    values, vectors = torch.linalg.eigh(limit_kernel(problem, m))
    covariance = output_covariance(problem) / m**2
    weights = (vectors.T @ problem.y).square() + (vectors.T @ covariance @ vectors).diagonal()
    kept_share = (1.0 - step_size * values).abs() ** (2 * local_steps)
    return (kept_share ** torch.arange(rounds + 1, device=kept_share.device)[:, None]) @ weights


def predicted_error(
    problem: Problem, numbers: Hyperparameters, rounds: int, samples: int = SAMPLES
) -> Tensor:
    """Return about E‖y − ŷ(t)‖², [rounds + 1].

    It is the error at infinite width (`limit_error`) plus what GIST adds.

    It is heuristic, and for rounds well below d_1. The first part has an error of order d_1^-1/2.
    """
    at_infinite_width = limit_error(
        problem, numbers.sub_gcns, numbers.local_steps, numbers.step_size, rounds
    )
    return at_infinite_width + LeadingOrder.of(problem, numbers, samples=samples).after(rounds)


def _mixed_powers(q: Tensor, count: int) -> Tensor:
    """Return f = Σ_k q_a^(ζ−1−k) q_b^k, [n, n], by doubling.

    f_2k = f_k (q_a^k + q_b^k), and f_(k+1) = q_a^k + q_b f_k.
    """
    f = torch.zeros_like(q[:, None] * q)
    power = torch.ones_like(q)
    for bit in f"{count:b}":
        f = f * (power[:, None] + power)
        power = power * power
        if bit == "1":
            f = power[:, None] + q * f
            power = power * q
    return f


def _sampled_mean(problem: Problem, vectors: Tensor, mixed: Tensor, samples: int) -> Tensor:
    """Return the diagonal of E_θ[L(K_θ) S L(K_θ)'] in the eigenvectors of G^∞, [n].

    It is a mean over samples of θ.
    """
    rng = torch.Generator().manual_seed(0)
    rows = vectors.T @ problem.a_bar
    inner = problem.x_hat @ problem.x_hat.T
    S = vectors.T @ output_covariance(problem) @ vectors
    total = torch.zeros_like(S[0])
    size = max(1, _NUMBERS_AT_ONCE // problem.n**2)
    for first in range(0, samples, size):
        shape = (problem.d, min(size, samples - first))
        theta = torch.randn(shape, dtype=torch.float64, generator=rng, device="cpu").to(S.device)
        active = (problem.x_hat @ theta >= 0).to(S.dtype).T  # [s, n]
        half = rows * active[:, None]  # [s, n, n]
        L = mixed * (half @ inner @ half.transpose(1, 2))
        total += ((L @ S) * L).sum(dim=(0, 2))
    return total / samples


def predict(
    problem: Problem,
    sub_gcns: int,
    local_steps: int,
    width: int,
    *,
    step_size: float | None = None,
    gamma: float = 0.5,
) -> dict[str, Any]:
    """Predict E‖y − ŷ(t)‖² of the training of a problem.

    `gistgnn theory check --json` prints what it returns.

    If step_size is None, η is `recommended_step`. Where η > 1/λ_max(G^∞), what needs a smaller one
    is None.
    """
    check_prediction(sub_gcns, local_steps, width, step_size, gamma)
    m = sub_gcns
    zeta = local_steps
    lambda_0 = problems.check_lambda_0(least_eigenvalue(problem, m))
    lambda_max = greatest_eigenvalue(problem, m)
    eta = (
        problems.recommended_step(problem, m)
        if step_size is None
        else problems.check_stable(problem, m, step_size)
    )
    contracts = eta * lambda_max <= 1.0
    numbers = Hyperparameters(width, m, zeta, eta)
    printed, corrected = (Bound(problem, numbers, gamma, printed=flag) for flag in (True, False))
    initial = problems.expected_initial_error(problem, m)
    leading = None
    if problem.n <= SAMPLED_NODES:
        leading = LeadingOrder.of(problem, numbers, samples=FEWER_SAMPLES).remaining
    return {
        "sub_gcns": m,
        "local_steps": zeta,
        "width": width,
        "gamma": gamma,
        "lambda_0": lambda_0,
        "lambda_max": lambda_max,
        "step_size": eta,
        "proof_step": proof_step(problem, m),  # the largest η that the proof allows
        "initial": initial,  # E‖y − ŷ(0)‖², exact
        # 1 − ηλ_0/2, for a local step
        "local_factor": 1.0 - eta * lambda_0 / 2.0 if contracts else None,
        "round_factor": printed.contraction,  # γ + (1 − γ)(1 − ηλ_0/2)^ζ, for a round (the theorem)
        # The factor of a round as d_1 → ∞.
        "limit_factor": (1.0 - eta * lambda_0) ** (2 * zeta) if contracts else None,
        # The theorem's bound as t → ∞, with the printed constants.
        "neighbourhood": printed.neighbourhood,
        "corrected_neighbourhood": corrected.neighbourhood,
        # The plateau for rounds well below d_1 (heuristic).
        "leading": leading,
    }


def check_prediction(
    sub_gcns: int, local_steps: int, width: int, step_size: float | None, gamma: float
) -> None:
    """Raise InputError if a number is out of range for every graph."""
    most = problems.LARGEST
    for name, value in (("sub_gcns", sub_gcns), ("local_steps", local_steps)):
        if not 1 <= value <= most:
            raise InputError(f"{name} is {value}, expected an integer from 1 to {most:,}")
    if not sub_gcns <= width <= most:
        raise InputError(
            f"width is {width}, expected m = {sub_gcns} or more, a neuron for every sub-GCN, to "
            f"{most:,}"
        )
    if step_size is not None and not 0 < step_size < math.inf:
        raise InputError(f"step_size is {step_size:g}, expected a number above 0")
    problems.check_gamma(gamma)


def rounds_to(share: float, factor: float) -> int | None:
    """Return how many rounds bring an error to a share of itself; None if never.

    Each round multiplies the error by `factor`.
    """
    if factor >= 1.0:
        return None
    return 1 if factor <= share else math.ceil(math.log(share) / math.log(factor))
