"""Measurements on trained GCNs, to compare the theory with: errors, kernels, and the exponents of power laws."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gistgnn.theory import model
from gistgnn.theory.bounds import ProvedBound, kernel_drift
from gistgnn.theory.kernel import kernel, least_eigenvalue, limit_kernel
from gistgnn.theory.lemmas import local_factor, proof_step, radius
from gistgnn.theory.problem import Problem


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent b of y = a x^b, by least squares on logarithms."""
    u, v = (torch.tensor(values, dtype=torch.float64).log() for values in (xs, ys))
    u, v = u - u.mean(), v - v.mean()
    return float((u @ v) / (u @ u))


def mean_of_second_half(errors: Tensor) -> float:
    """Return the mean over the rounds after T/2, of errors [T + 1]."""
    return float(errors[len(errors) // 2 + 1 :].mean())


def measure_convergence(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, step_size: float, rounds: int, seeds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Train from S seeds, with different Θ_0, a and masks and η <= 1/λ_max(G^∞), beside `ProvedBound`.

    Returns:
        ‖y − ŷ(t)‖², [S, T + 1]; ρ of each run, the largest ‖Ĝ − G^∞‖ of its steps, [S]; `ProvedBound.at` of each run,
        [S, T + 1], which is nan if ρ >= λ_0, where the bound says nothing.
    """
    lambda_0 = least_eigenvalue(problem, sub_gcns)
    errors, drift = torch.empty(seeds, rounds + 1, dtype=torch.float64), torch.zeros(seeds, dtype=torch.float64)
    proved = torch.full_like(errors, math.nan)
    for seed in range(seeds):
        gist = model.make_gist(problem, d_1, sub_gcns, seed)
        rho, V = 0.0, 0.0
        errors[seed, 0] = (problem.y - model.global_output(gist, problem)).square().sum()
        for t in range(1, rounds + 1):
            trace = model.train_round(gist, problem, local_steps, step_size)
            errors[seed, t] = (problem.y - trace.after).square().sum()
            rho, V = max(rho, kernel_drift(problem, [trace], d_1)), max(V, trace.deviation())
        drift[seed] = rho
        if rho < lambda_0:
            bound, start = ProvedBound(lambda_0, rho, step_size, local_steps), float(errors[seed, 0])
            proved[seed] = torch.tensor([bound.at(t, start, V) for t in range(rounds + 1)], dtype=torch.float64)
    return errors, drift, proved


def measure_remaining_error(
    problem: Problem,
    d_1: int,
    sub_gcns: int,
    local_steps: int,
    step_size: float,
    rounds: int,
    seeds: int,
    from_zero: bool = False,
) -> float:
    """Return the mean of ‖y − ŷ(t)‖² over seeds and the second half of the rounds; from_zero sets y = ŷ(0)."""
    total = 0.0
    for seed in range(seeds):
        gist, fitted = model.start_without_error(problem, d_1, sub_gcns, seed)
        errors = model.train(gist, fitted if from_zero else problem, rounds, local_steps, step_size)
        total += mean_of_second_half(errors)
    return total / seeds


def measure_added_error(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, step_size: float, draws: int, seeds: int
) -> float:
    """Return the error that a round adds: the mean of ‖y − ŷ(1)‖² over masks and seeds, with y = ŷ(0)."""
    starts = (model.start_without_error(problem, d_1, sub_gcns, seed) for seed in range(seeds))
    errors = [model.sample_next_errors(*start, local_steps, step_size, draws) for start in starts]
    return float(torch.cat(errors).mean())


def measure_kernel_distance(problem: Problem, d_1: int, sub_gcns: int, draws: int) -> float:
    """Return the root mean square of ‖G^(j)(0, 0, 0) − G^∞‖_F over Gaussian weights and categorical masks."""
    G, squares = limit_kernel(problem, sub_gcns), []
    for seed in range(draws):
        rng = torch.Generator().manual_seed(seed)
        theta = torch.randn(problem.d, d_1, dtype=torch.float64, generator=rng, device="cpu")
        neurons = model.make_gist(problem, d_1, sub_gcns, seed).blocks(0)[0][0]
        squares.append((kernel(problem, theta[:, neurons], d_1) - G).square().sum())
    return float(torch.stack(squares).mean().sqrt())


def measure_contraction(problem: Problem, d_1: int, sub_gcns: int, local_steps: int, seeds: int) -> dict[str, float]:
    """Train a round with `proof_step`, and compare the sub-GCNs that meet the conditions of Lemma local_converge.

    The conditions: all neurons stay within R of their start, at most 4 d_1 R of them can change their sign at any node,
    and λ_min of all kernels is at least λ_0/2.

    Returns:
        "trained", the number of sub-GCNs; "met", how many of them meet the conditions; "factor", the lemma's
        1 − ηλ_0/2; "slowest", the largest ‖e_j(k + 1)‖² / ‖e_j(k)‖² of those that meet them, or nan.
    """
    eta, R, lambda_0 = proof_step(problem, sub_gcns), radius(problem, sub_gcns), least_eigenvalue(problem, sub_gcns)
    ratios: list[float] = []
    for seed in range(seeds):
        gist = model.make_gist(problem, d_1, sub_gcns, seed)
        start = model.global_weights(gist)
        near = ((problem.x_hat @ start).abs() <= R * problem.x_hat.norm(dim=1)[:, None]).sum(dim=1).max()
        trace = model.train_round(gist, problem, local_steps, eta)
        for (neurons,), path, errors in zip(gist.blocks(0), trace.weights, trace.local_errors(problem.y), strict=True):
            moved = max(float((theta - start[:, neurons]).norm(dim=0).max()) for theta in path)
            least = min(float(torch.linalg.eigvalsh(kernel(problem, theta, d_1))[0]) for theta in path)
            if near <= 4 * d_1 * R and moved <= R and least >= lambda_0 / 2:
                ratios.append(float((errors[1:] / errors[:-1]).max()))
    slowest, factor = max(ratios, default=math.nan), local_factor(eta, lambda_0)
    return {"trained": seeds * sub_gcns, "met": len(ratios), "factor": factor, "slowest": slowest}
