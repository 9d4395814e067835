"""The one-hidden-layer GCN of the analysis (appendix C.1), trained and measured.

GIST trains it with gradient descent.

Blocks, Θ and rounds are those of `GIST`. The paper's masks may leave a sub-GCN without a neuron,
with probability below m (1 − 1/m)^d_1; GIST then draws again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from gistgnn import GIST, InputError
from gistgnn.theory.bounds import ProvedBound, proof_step
from gistgnn.theory.problem import (
    Hyperparameters,
    Problem,
    aggregation,
    kernel,
    least_eigenvalue,
    limit_kernel,
    secant_kernel,
)


class OneHiddenGCN(nn.Module):
    """ŷ = (1/√d_1) Ā σ(ĀXΘ) a, in float64.

    Θ [d, width] is trained, and a [width] has fixed signs. A sub-GCN has a smaller width, but keeps
    the factor 1/√d_1 of the whole GCN.
    """

    theta: nn.Parameter
    a: Tensor

    def __init__(self, d: int, width: int, d_1: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(d, width, dtype=torch.float64))
        self.register_buffer(
            "a", torch.empty(width, dtype=torch.float64).uniform_(-1.0, 1.0).sign()
        )
        self.scale = d_1**-0.5

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return ŷ, [n, 1], from X [n, d] float64 and the edges [2, E], each in both directions."""
        a_bar = aggregation(edge_index, x.shape[0])
        return self.outputs(a_bar, a_bar @ x)[:, None]

    def outputs(self, a_bar: Tensor, x_hat: Tensor) -> Tensor:
        """Return ŷ, [n], from Ā [n, n] and X̂ [n, d]."""
        return self.scale * a_bar @ ((x_hat @ self.theta).relu() @ self.a)


def make_gist(problem: Problem, d_1: int, sub_gcns: int, seed: int = 0) -> GIST:
    """Return `GIST` as the theory has it: a `OneHiddenGCN` with categorical masks."""
    d = problem.d
    # The theorem is about plain gradient descent, whatever the width.
    options: dict[str, Any] = {"partition": "categorical", "width_scaling": "none"}
    return GIST(
        lambda widths: OneHiddenGCN(d, widths[0], d_1), (d_1,), sub_gcns, seed=seed, **options
    )


def start_without_error(
    problem: Problem, d_1: int, sub_gcns: int, seed: int
) -> tuple[GIST, Problem]:
    """Return GIST, and the problem with y = ŷ(0), so that the error is zero at the start."""
    gist = make_gist(problem, d_1, sub_gcns, seed)
    return gist, replace(problem, y=global_output(gist, problem))


def global_weights(gist: GIST) -> Tensor:
    """Return Θ_t, [d, d_1]."""
    return gist.model().get_parameter("theta").detach()


def global_output(gist: GIST, problem: Problem) -> Tensor:
    """Return ŷ(t) = (1 / (m √d_1)) Ā σ(X̂Θ_t) a, [n] (appendix C.5).

    The outputs of the sub-GCNs have no 1/m.
    """
    model = cast(OneHiddenGCN, gist.model())
    with torch.no_grad():
        return model.outputs(problem.a_bar, problem.x_hat) / gist.sub_gcns


@dataclass(frozen=True, eq=False)
class Trace:
    """A record of one round of GIST."""

    before: Tensor  # ŷ(t), [n]
    outputs: Tensor  # ŷ^(j)(t, k), [m, ζ + 1, n]
    after: Tensor  # ŷ(t + 1), [n]
    weights: list[list[Tensor]]  # Θ^(j)_{t,k} [d, d^(j)] of each sub-GCN j at k = 0 ... ζ

    def local_errors(self, y: Tensor) -> Tensor:
        """Return ‖y − ŷ^(j)(t, k)‖², [m, ζ + 1]."""
        return (self.outputs - y).square().sum(dim=-1)

    def deviation(self) -> float:
        """Return V_t, the root mean square of ‖ŷ(t) − ŷ^(j)(t, 0)‖ over the sub-GCNs.

        See `bounds`.
        """
        return float((self.outputs[:, 0] - self.before).square().sum(dim=1).mean().sqrt())


def train_round(gist: GIST, problem: Problem, local_steps: int, step_size: float) -> Trace:
    """Train one round of what `make_gist` returned (eq. GIST_procedure).

    That is subGCNs, ζ steps of gradient descent on each sub-GCN, and subAgg.
    """
    # The loss is ½‖y − ŷ^(j)‖². The paper has no ½, but writes the gradient of this loss.
    if local_steps < 1:
        raise InputError(f"local_steps is {local_steps}, expected at least 1")
    if not step_size > 0:
        raise InputError(
            f"step_size is {step_size}, expected a positive number, such as recommended_step "
            "returns"
        )
    before = global_output(gist, problem)
    round_ = gist.begin_round()
    paths = [_descend(sub, problem, local_steps, step_size) for sub in round_]
    round_.aggregate()
    outputs = torch.stack([output for output, _ in paths])
    return Trace(before, outputs, global_output(gist, problem), [weights for _, weights in paths])


def train(gist: GIST, problem: Problem, rounds: int, local_steps: int, step_size: float) -> Tensor:
    """Train what `make_gist` returned for T rounds.

    Returns ‖y − ŷ(t)‖² for t = 0 ... T, [T + 1].
    """
    outputs = [global_output(gist, problem)]
    outputs += [train_round(gist, problem, local_steps, step_size).after for _ in range(rounds)]
    return (torch.stack(outputs) - problem.y).square().sum(dim=1)


def _descend(
    model: nn.Module, problem: Problem, steps: int, step_size: float
) -> tuple[Tensor, list[Tensor]]:
    """Take ζ steps of gradient descent.

    Returns the outputs [ζ + 1, n] and the weights of each step.
    """
    sub = cast(OneHiddenGCN, model)
    outputs = []
    weights = []
    for k in range(steps + 1):
        output = sub.outputs(problem.a_bar, problem.x_hat)
        outputs.append(output.detach())
        weights.append(sub.theta.detach().clone())
        if k < steps:
            (gradient,) = torch.autograd.grad(0.5 * (problem.y - output).square().sum(), sub.theta)
            with torch.no_grad():
                sub.theta.sub_(gradient, alpha=step_size)
    return torch.stack(outputs), weights


def kernel_drift(problem: Problem, traces: Iterable[Trace], d_1: int) -> float:
    """Return ρ, the largest ‖Ĝ − G^∞‖ over the steps of all sub-GCNs in some rounds."""
    worst = 0.0
    for trace in traces:
        G = limit_kernel(problem, len(trace.weights))
        for before, after in (step for path in trace.weights for step in pairwise(path)):
            off = torch.linalg.matrix_norm(secant_kernel(problem, before, after, d_1) - G, ord=2)
            worst = max(worst, float(off))
    return worst


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent b of y = a x^b, by least squares on logarithms."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def mean_of_second_half(errors: Tensor) -> float:
    """Return the mean over the rounds after T/2, of errors [T + 1]."""
    return float(errors[len(errors) // 2 + 1 :].mean())


def measure_convergence(
    problem: Problem, numbers: Hyperparameters, rounds: int, seeds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Train from S seeds, with η <= 1/λ_max(G^∞).

    Returns ‖y − ŷ(t)‖² [S, T + 1], ρ [S] and `ProvedBound.at` [S, T + 1].
    """
    # The bound of a run is nan if its ρ is λ_0 or more, where it says nothing.
    local_steps = numbers.local_steps
    step_size = numbers.step_size
    lambda_0 = least_eigenvalue(problem, numbers.sub_gcns)
    errors = torch.empty(seeds, rounds + 1, dtype=torch.float64)
    drift = torch.zeros(seeds, dtype=torch.float64)
    proved = torch.full_like(errors, math.nan)
    for seed in range(seeds):
        gist = make_gist(problem, numbers.d_1, numbers.sub_gcns, seed)
        rho = 0.0
        V = 0.0
        errors[seed, 0] = (problem.y - global_output(gist, problem)).square().sum()
        for t in range(1, rounds + 1):
            trace = train_round(gist, problem, local_steps, step_size)
            errors[seed, t] = (problem.y - trace.after).square().sum()
            rho = max(rho, kernel_drift(problem, [trace], numbers.d_1))
            V = max(V, trace.deviation())
        drift[seed] = rho
        if rho < lambda_0:
            bound = ProvedBound(lambda_0, rho, step_size, local_steps)
            start = float(errors[seed, 0])
            proved[seed] = torch.tensor(
                [bound.at(t, start, V) for t in range(rounds + 1)], dtype=torch.float64
            )
    return errors, drift, proved


def measure_remaining_error(
    problem: Problem,
    numbers: Hyperparameters,
    rounds: int,
    seeds: int,
    from_zero: bool = False,
) -> float:
    """Return the mean of ‖y − ŷ(t)‖² over seeds and the second half of the rounds.

    `from_zero` sets y = ŷ(0).
    """
    total = 0.0
    for seed in range(seeds):
        gist, fitted = start_without_error(problem, numbers.d_1, numbers.sub_gcns, seed)
        target = fitted if from_zero else problem
        errors = train(gist, target, rounds, numbers.local_steps, numbers.step_size)
        total += mean_of_second_half(errors)
    return total / seeds


def measure_added_error(
    problem: Problem, numbers: Hyperparameters, draws: int, seeds: int
) -> float:
    """Return the error that a round adds.

    It is the mean of ‖y − ŷ(1)‖² over masks and seeds, with y = ŷ(0).
    """
    errors = []
    for seed in range(seeds):
        gist, fitted = start_without_error(problem, numbers.d_1, numbers.sub_gcns, seed)
        # Each draw has the masks of another round. None is aggregated, so Θ stays.
        for _ in range(draws):
            ends = [
                _descend(sub, fitted, numbers.local_steps, numbers.step_size)[0][-1]
                for sub in gist.begin_round()
            ]
            errors.append((fitted.y - torch.stack(ends).mean(dim=0)).square().sum())
    return float(torch.stack(errors).mean())


def measure_kernel_distance(problem: Problem, d_1: int, sub_gcns: int, draws: int) -> float:
    """Return the root mean square of ‖G^(j)(0, 0, 0) − G^∞‖_F.

    The mean is over Gaussian weights and categorical masks.
    """
    G = limit_kernel(problem, sub_gcns)
    squares = []
    for seed in range(draws):
        rng = torch.Generator().manual_seed(seed)
        theta = torch.randn(problem.d, d_1, dtype=torch.float64, generator=rng, device="cpu")
        neurons = make_gist(problem, d_1, sub_gcns, seed).blocks(0)[0][0]
        squares.append((kernel(problem, theta[:, neurons], d_1) - G).square().sum())
    return float(torch.stack(squares).mean().sqrt())


def measure_contraction(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, seeds: int
) -> dict[str, float]:
    """Train a round with `proof_step`, and measure the contraction of sub-GCNs.

    Those that meet the conditions of Lemma local_converge are compared with it.
    """
    # The conditions: all neurons stay within R of their start, at most 4 d_1 R of them can change
    # their sign at any node, and λ_min of all kernels is at least λ_0/2. "met" of the "trained"
    # sub-GCNs meet them; "slowest" is the largest ‖e_j(k + 1)‖² / ‖e_j(k)‖² of these, or nan;
    # "factor" is the lemma's 1 − ηλ_0/2.
    eta = proof_step(problem, sub_gcns)
    lambda_0 = least_eigenvalue(problem, sub_gcns)
    R = lambda_0 / (192.0 * problem.n)  # printed: λ_0 / (96 n)
    ratios: list[float] = []
    for seed in range(seeds):
        gist = make_gist(problem, d_1, sub_gcns, seed)
        start = global_weights(gist)
        may_change = (problem.x_hat @ start).abs() <= R * problem.x_hat.norm(dim=1)[:, None]
        near = may_change.sum(dim=1).max()  # the most neurons that can change their sign at a node
        trace = train_round(gist, problem, local_steps, eta)
        for (neurons,), path, errors in zip(
            gist.blocks(0), trace.weights, trace.local_errors(problem.y), strict=True
        ):
            moved = max(float((theta - start[:, neurons]).norm(dim=0).max()) for theta in path)
            least = min(
                float(torch.linalg.eigvalsh(kernel(problem, theta, d_1))[0]) for theta in path
            )
            if near <= 4 * d_1 * R and moved <= R and least >= lambda_0 / 2:
                ratios.append(float((errors[1:] / errors[:-1]).max()))
    slowest = max(ratios, default=math.nan)
    factor = 1.0 - eta * lambda_0 / 2.0
    return {"trained": seeds * sub_gcns, "met": len(ratios), "factor": factor, "slowest": slowest}
