"""Measurements on trained GCNs, to compare the theory with: errors, kernels, and the exponents of power laws."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.partition import Partition
from gistgnn.theory.bounds import ProvedBound, kernel_drift
from gistgnn.theory.kernel import kernel, least_eigenvalue, limit_kernel
from gistgnn.theory.lemmas import local_factor, proof_step, radius
from gistgnn.theory.model import (
    global_output,
    global_weights,
    make_gist,
    sample_next_errors,
    start_without_error,
    train,
    train_round,
)
from gistgnn.theory.problem import Problem


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent b of y = a x^b, by least squares on logarithms."""
    u, v = (torch.tensor(values, dtype=torch.float64).log() for values in (xs, ys))
    u, v = u - u.mean(), v - v.mean()
    return float((u @ v) / (u @ u))


def mean_of_second_half(errors: Tensor) -> float:
    """Return the mean over the rounds after T/2, of errors [T + 1]."""
    return float(errors[len(errors) // 2 + 1 :].mean())


@dataclass(frozen=True, eq=False)
class Convergence:
    """S runs with different Θ_0, a and masks, beside `ProvedBound`."""

    errors: Tensor  # ‖y − ŷ(t)‖², [S, T + 1]
    drift: Tensor  # ρ of each run, the largest ‖Ĝ − G^∞‖ of its steps, [S]
    proved: Tensor  # `ProvedBound.at` for each run, [S, T + 1]; nan if ρ >= λ_0, where the bound says nothing


def measure_convergence(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, step_size: float, rounds: int, seeds: int
) -> Convergence:
    """Train from S seeds with η <= 1/λ_max(G^∞), and compute `ProvedBound` for every run."""
    lambda_0 = least_eigenvalue(problem, sub_gcns)
    errors, drift = torch.empty(seeds, rounds + 1, dtype=torch.float64), torch.zeros(seeds, dtype=torch.float64)
    proved = torch.full_like(errors, math.nan)
    for seed in range(seeds):
        gist = make_gist(problem, d_1, sub_gcns, seed)
        output, rho, V = global_output(gist, problem), 0.0, 0.0
        errors[seed, 0] = (problem.y - output).square().sum()
        for t in range(1, rounds + 1):
            trace = train_round(gist, problem, local_steps, step_size, keep_weights=True, before=output)
            output = trace.after
            errors[seed, t] = (problem.y - output).square().sum()
            rho, V = max(rho, kernel_drift(problem, [trace], d_1)), max(V, trace.deviation())
        drift[seed] = rho
        if rho < lambda_0:
            bound, start = ProvedBound(lambda_0, rho, step_size, local_steps), float(errors[seed, 0])
            proved[seed] = torch.tensor([bound.at(t, start, V) for t in range(rounds + 1)], dtype=torch.float64)
    return Convergence(errors, drift, proved)


def measure_remaining_error(
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
    """Return the mean of ‖y − ŷ(t)‖² over seeds and the second half of the rounds; from_zero sets y = ŷ(0)."""
    starts = (start_without_error(problem, d_1, sub_gcns, seed) for seed in range(seeds))
    runs = (train(gist, fitted if from_zero else problem, rounds, local_steps, step_size) for gist, fitted in starts)
    return sum(map(mean_of_second_half, runs)) / seeds


def measure_added_error(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, step_size: float, draws: int, seeds: int
) -> float:
    """Return the error that a round adds: the mean of ‖y − ŷ(1)‖² over masks and seeds, with y = ŷ(0)."""
    starts = (start_without_error(problem, d_1, sub_gcns, seed) for seed in range(seeds))
    return float(torch.cat([sample_next_errors(*start, local_steps, step_size, draws) for start in starts]).mean())


def measure_kernel_distance(problem: Problem, d_1: int, sub_gcns: int, draws: int) -> float:
    """Return the root mean square of ‖G^(j)(0, 0, 0) − G^∞‖_F over Gaussian weights and categorical masks."""
    G, squares = limit_kernel(problem, sub_gcns), []
    for seed in range(draws):
        rng = torch.Generator().manual_seed(seed)
        theta = torch.randn(problem.d, d_1, dtype=torch.float64, generator=rng, device="cpu")
        neurons = Partition((d_1,), sub_gcns, kind="categorical", seed=seed).blocks(0)[0][0]
        squares.append((kernel(problem, theta[:, neurons], d_1) - G).square().sum())
    return float(torch.stack(squares).mean().sqrt())


@dataclass(frozen=True)
class Contraction:
    """Lemma local_converge beside the training of some sub-GCNs."""

    trained: int  # the number of sub-GCNs
    met: int  # how many of them met the conditions of the lemma
    factor: float  # 1 − ηλ_0/2, the lemma's factor
    slowest: float  # the largest ‖e_j(k + 1)‖² / ‖e_j(k)‖² of the sub-GCNs that met them; nan if none did


def measure_contraction(problem: Problem, d_1: int, sub_gcns: int, local_steps: int, seeds: int) -> Contraction:
    """Train a round with `proof_step`, and compare the sub-GCNs that meet the conditions of Lemma local_converge.

    The conditions: all neurons stay within R of their start, at most 4 d_1 R of them can change their sign at any node,
    and λ_min of all kernels is at least λ_0/2.
    """
    eta, R, lambda_0 = proof_step(problem, sub_gcns), radius(problem, sub_gcns), least_eigenvalue(problem, sub_gcns)
    ratios: list[float] = []
    for seed in range(seeds):
        gist = make_gist(problem, d_1, sub_gcns, seed)
        start = global_weights(gist)
        near = ((problem.x_hat @ start).abs() <= R * problem.x_hat.norm(dim=1)[:, None]).sum(dim=1).max()
        trace = train_round(gist, problem, local_steps, eta, keep_weights=True)
        for (neurons,), path, errors in zip(gist.blocks(0), trace.weights, trace.local_errors(problem.y), strict=True):
            moved = max(float((theta - start[:, neurons]).norm(dim=0).max()) for theta in path)
            least = min(float(torch.linalg.eigvalsh(kernel(problem, theta, d_1))[0]) for theta in path)
            if near <= 4 * d_1 * R and moved <= R and least >= lambda_0 / 2:
                ratios.append(float((errors[1:] / errors[:-1]).max()))
    return Contraction(seeds * sub_gcns, len(ratios), local_factor(eta, lambda_0), max(ratios, default=math.nan))
