"""Measurements of what the theory is about: errors of training, kernels, what remains, and the slopes of these."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gistgnn.gist import GIST
from gistgnn.partition import Partition
from gistgnn.theory.kernel import kernel, least_eigenvalue, limit_kernel
from gistgnn.theory.lazy import LazyBound, deviation_of, kernel_drift
from gistgnn.theory.lemmas import local_factor, proof_step, radius
from gistgnn.theory.limit import output_gram
from gistgnn.theory.model import (
    global_output,
    global_weights,
    make_gist,
    sample_next_errors,
    train,
    train_round,
)
from gistgnn.theory.problem import Problem


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent b of y = a x^b, by least squares on logarithms."""
    u, v = (torch.tensor(each, dtype=torch.float64).log() for each in (xs, ys))
    u, v = u - u.mean(), v - v.mean()
    return float((u @ v) / (u @ u))


@dataclass(frozen=True, eq=False)
class Convergence:
    """Some runs that differ in Θ_0, a and the masks.

    Attributes:
        errors: ‖y − ŷ(t)‖², [S, T + 1].
        drift: ρ of each run, the largest ‖Ĝ − G^∞‖ of its steps, [S].
        deviation: the largest V_t of each run, [S].
        lazy: `LazyBound.at` of each run, [S, T + 1]; nan where ρ is not below λ_0, for which it says nothing.
    """

    errors: Tensor
    drift: Tensor
    deviation: Tensor
    lazy: Tensor


def converge(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, step_size: float, rounds: int, seeds: int
) -> Convergence:
    """Train from several seeds, and compare every run with `LazyBound`.

    Args:
        problem: X, Ā and y.
        d_1: the width.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η, at most 1/λ_max(G^∞).
        rounds: T.
        seeds: S.
    """
    lambda_0 = least_eigenvalue(problem, sub_gcns)
    errors = torch.empty(seeds, rounds + 1, dtype=torch.float64)
    drift, deviation = torch.zeros(seeds, dtype=torch.float64), torch.zeros(seeds, dtype=torch.float64)
    lazy = torch.full_like(errors, math.nan)
    for seed in range(seeds):
        gist = make_gist(problem, d_1, sub_gcns, seed)
        errors[seed, 0] = (problem.y - global_output(gist, problem)).square().sum()
        for t in range(rounds):
            trace = train_round(gist, problem, local_steps, step_size, keep_weights=True)
            errors[seed, t + 1] = (problem.y - trace.after).square().sum()
            drift[seed] = max(float(drift[seed]), kernel_drift(problem, [trace], d_1))
            deviation[seed] = max(float(deviation[seed]), float(deviation_of(trace)))
        if float(drift[seed]) < lambda_0:
            bound = LazyBound(lambda_0, float(drift[seed]), step_size, local_steps)
            start, V = float(errors[seed, 0]), float(deviation[seed])
            lazy[seed] = torch.tensor([bound.at(t, start, V) for t in range(rounds + 1)], dtype=torch.float64)
    return Convergence(errors, drift, deviation, lazy)


def remaining_error(
    problem: Problem,
    d_1: int,
    sub_gcns: int,
    local_steps: int,
    step_size: float,
    rounds: int,
    seeds: int,
    *,
    from_zero: bool = False,
) -> float:
    """Return the error neighbourhood: the mean of ‖y − ŷ(t)‖² over seeds and over the second half of the rounds.

    Args:
        problem: X, Ā and y.
        d_1: the width.
        sub_gcns: m.
        local_steps: ζ.
        step_size: η.
        rounds: T.
        seeds: of Θ_0, a and the masks.
        from_zero: y is ŷ(0), so that there is no error to begin with that would have to be gone by then.
    """
    means = []
    for seed in range(seeds):
        gist, own = fitted(problem, d_1, sub_gcns, seed)
        errors = train(gist, own if from_zero else problem, rounds, local_steps, step_size)
        means.append(second_half(errors))
    return sum(means) / seeds


def second_half(errors: Tensor) -> float:
    """Return the mean over the rounds after T/2, of errors [T + 1]."""
    return float(errors[len(errors) // 2 + 1 :].mean())


def added_error(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, step_size: float, draws: int, seeds: int
) -> float:
    """Return what a round adds: the mean of ‖y − ŷ(1)‖² over masks and seeds, where y = ŷ(0) to begin with."""
    errors = [
        sample_next_errors(*fitted(problem, d_1, sub_gcns, seed), local_steps, step_size, draws)
        for seed in range(seeds)
    ]
    return float(torch.cat(errors).mean())


def fitted(problem: Problem, d_1: int, sub_gcns: int, seed: int) -> tuple[GIST, Problem]:
    """Return GIST and the problem whose targets are its output at the start."""
    gist = make_gist(problem, d_1, sub_gcns, seed)
    return gist, replace(problem, y=global_output(gist, problem))


def kernel_distance(problem: Problem, d_1: int, sub_gcns: int, draws: int) -> float:
    """Return the root mean square of ‖G^(j)(0, 0, 0) − G^∞‖_F over Gaussian weights and categorical masks."""
    G, squares = limit_kernel(problem, sub_gcns), []
    for seed in range(draws):
        rng = torch.Generator().manual_seed(seed)
        theta = torch.randn(problem.d, d_1, dtype=torch.float64, generator=rng, device="cpu")
        block = Partition((d_1,), sub_gcns, kind="categorical", seed=seed).blocks(0)[0][0]
        squares.append((kernel(problem, theta[:, block], d_1) - G).square().sum())
    return float(torch.stack(squares).mean().sqrt())


@dataclass(frozen=True)
class Contraction:
    """What Lemma local_converge says of some sub-GCNs, and what they do.

    Attributes:
        trained: how many sub-GCNs.
        met: how many of them met its conditions.
        factor: 1 − ηλ_0/2.
        slowest: the largest ‖e_j(k + 1)‖² / ‖e_j(k)‖² of those that met them; nan of none.
    """

    trained: int
    met: int
    factor: float
    slowest: float


def contract(problem: Problem, d_1: int, sub_gcns: int, local_steps: int, seeds: int) -> Contraction:
    """Train a round at the proof's step, and look at each sub-GCN that meets the conditions of Lemma local_converge.

    They are: neurons within R of their start, at most 4 d_1 R of them that can change their sign at any node, and
    λ_min of all kernels at least λ_0/2.
    """
    eta, R = proof_step(problem, sub_gcns), radius(problem, sub_gcns)
    lambda_0 = least_eigenvalue(problem, sub_gcns)
    ratios: list[float] = []
    for seed in range(seeds):
        gist = make_gist(problem, d_1, sub_gcns, seed)
        start = global_weights(gist)
        near = ((problem.x_hat @ start).abs() <= R * problem.x_hat.norm(dim=1)[:, None]).sum(dim=1).max()
        trace = train_round(gist, problem, local_steps, eta, keep_weights=True)
        for j, (block,) in enumerate(gist.blocks(0)):
            path, errors = trace.weights[j], trace.local_errors(problem.y)[j]
            moved = max(float((theta - start[:, block]).norm(dim=0).max()) for theta in path)
            least = min(float(torch.linalg.eigvalsh(kernel(problem, theta, d_1))[0]) for theta in path)
            if near <= 4 * d_1 * R and moved <= R and least >= lambda_0 / 2:
                ratios.append(float((errors[1:] / errors[:-1]).max()))
    slowest = max(ratios, default=math.nan)
    return Contraction(seeds * sub_gcns, len(ratios), local_factor(eta, lambda_0), slowest)


@dataclass(frozen=True)
class Disagreement:
    """ι_0, the fall of the sub-GCNs' disagreement in the first round, for y = 0 and d_1 → ∞.

    Attributes:
        fall: (m−1)/m² tr(S − Q^2ζ S), with Q = I − ηG^∞ and S = ĀKĀ.
        allowed: what Lemma error_term_bound leaves of its right-hand side: (ηλ_0/2m) Σ_k tr(Q^2k S), for γ = 1.
    """

    fall: float
    allowed: float


def disagreement_in_the_limit(problem: Problem, sub_gcns: int, local_steps: int, step_size: float) -> Disagreement:
    """Return both sides of Lemma error_term_bound where it fails: see docs/theory.md."""
    m = sub_gcns
    Q = torch.eye(problem.n, dtype=torch.float64) - step_size * limit_kernel(problem, m)
    S = problem.a_bar @ output_gram(problem.x_hat) @ problem.a_bar
    left = [float(torch.trace(torch.linalg.matrix_power(Q, 2 * k) @ S)) for k in range(local_steps + 1)]
    allowed = step_size * least_eigenvalue(problem, m) / (2 * m) * sum(left[:-1])
    return Disagreement((m - 1) / m**2 * (left[0] - left[-1]), allowed)
