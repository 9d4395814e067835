"""What remains of the error after many rounds of GIST.

    python -m benchmarks.theory_long_run     # about two minutes

docs/paper/theory.md predicts a plateau for rounds well below d_1. This script trains for many
more rounds and prints Markdown tables: the error, its prediction, what moves the weights, and the
round from which `ProvedBound` says nothing.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.tables import table
from gistgnn.theory import (
    Hyperparameters,
    LeadingOrder,
    Problem,
    complete,
    global_weights,
    least_eigenvalue,
    limit_kernel,
    make_gist,
    predicted_error,
    recommended_step,
)

M = 2  # sub-GCNs
RUNS = ((1024, True), (1024, False), (256, False))  # d_1, and whether y = ŷ(0) instead of ±1
LOOKS = (100, 300, 1000, 3000, 10_000, 30_000)  # the rounds at which the error is reported
DRIFT_WIDTHS = (16_384, 32_768, 65_536)  # d_1 of the second table
CHECK_EVERY = 10  # rounds between two looks at the kernels
ERROR, NORMS, OFF, DRIFT = range(4)  # the numbers of a round, which `train_fast` explains


def train_fast(
    problem: Problem,
    d_1: int,
    m: int,
    step_size: float,
    rounds: int,
    seed: int,
    *,
    from_zero: bool,
    check_every: int = 0,
) -> Iterator[tuple[float, float, float, float]]:
    """Train as `gistgnn.theory.train` does with ζ = 1, and yield four numbers for every round.

    It is written in NumPy, and computes Z = X̂Θ in place of Θ: a step changes z_r by
    η a_r / √d_1 X̂X̂' I_r Ā (y − ŷ^(j)). Θ_0, a and the blocks are those of `make_gist`.

    Args:
        problem: the graph, its features and y.
        d_1: the width of the hidden layer.
        m: the number of sub-GCNs.
        step_size: η.
        rounds: how many rounds to train.
        seed: of Θ_0, a and the blocks.
        from_zero: whether y is ŷ(0) in place of the problem's y.
        check_every: rounds between two computations of the drift, the fourth number; 0 for never.

    Yields:
        After 0, 1, ... rounds: the error ‖y − ŷ(t)‖²; Σ_r ‖h_r‖², where h_r is what neuron r adds
        to mŷ; the share of the pairs of a neuron and a node in which the neuron is off; and the
        drift, which is the largest ‖G^(j)(t) − G^∞‖, or nan where it is not computed.
    """
    gist = make_gist(problem, d_1, m, seed)
    z = np.ascontiguousarray((problem.x_hat @ global_weights(gist)).T.numpy())  # [d_1, n]
    a = gist.model().get_buffer("a").numpy() / math.sqrt(d_1)
    a_bar = problem.a_bar.numpy()
    inner = (problem.x_hat @ problem.x_hat.T).numpy()
    G = limit_kernel(problem, m).numpy()
    y = a_bar @ (np.maximum(z, 0.0).T @ a) / m if from_zero else problem.y.numpy()
    for t in range(rounds + 1):
        hidden = np.maximum(z, 0.0)
        blocks = [block.numpy() for (block,) in gist.blocks(t)]
        drift = math.nan
        if check_every and t % check_every == 0:
            drift = max(_distance(z[block], a_bar, inner, d_1, G) for block in blocks)
        error = float(np.square(y - a_bar @ (hidden.T @ a) / m).sum())
        norms = float(np.square(hidden @ a_bar).sum()) / d_1
        off = float((z <= 0).mean())
        yield error, norms, off, drift
        for block in blocks:
            signs = a[block]
            active = z[block] > 0
            residual = y - a_bar @ (hidden[block].T @ signs)
            z[block] += (active * (step_size * (a_bar @ residual))) * signs[:, None] @ inner


def _distance(
    z: np.ndarray, a_bar: np.ndarray, inner: np.ndarray, d_1: int, limit: np.ndarray
) -> float:
    """Return ‖G^(j) − G^∞‖ of the sub-GCN whose neurons have the rows z: [d_1 / m, n]."""
    active = (z > 0).astype(np.float64)
    kernel = a_bar @ (inner * (active.T @ active) / d_1) @ a_bar
    return float(np.linalg.norm(kernel - limit, ord=2))


def window(values: Sequence[float], t: int) -> float:
    """Return the mean over the last fifth of the first t rounds."""
    return float(np.mean(values[t - t // 5 : t + 1]))


def name_of(from_zero: bool) -> str:
    """Return what y is, for a table."""
    return "ŷ(0)" if from_zero else "±1"


def error_rows(problem: Problem, seeds: int, looks: Sequence[int]) -> Iterator[list[str]]:
    """Yield a row for every run and look: the error, its prediction, and what moves the weights."""
    eta = recommended_step(problem, M)
    for d_1, from_zero in RUNS:
        settings: dict[str, Any] = {
            "d_1": d_1,
            "m": M,
            "step_size": eta,
            "rounds": looks[-1],
            "from_zero": from_zero,
        }
        runs = [list(train_fast(problem, **settings, seed=seed)) for seed in range(seeds)]
        numbers = Hyperparameters(d_1, M, 1, eta)
        if from_zero:  # at infinite width there is no error then
            predicted = LeadingOrder.of(problem, numbers).after(looks[-1]).tolist()
        else:
            predicted = predicted_error(problem, numbers, looks[-1]).tolist()
        means = np.mean(runs, axis=0)  # over the seeds: [rounds + 1, 4]
        errors = means[:, ERROR]
        norms = means[:, NORMS]
        off = means[:, OFF]
        for t in looks:
            left = window(errors, t)
            prediction = window(predicted, t)
            run_cells = [f"{d_1:,}", name_of(from_zero), f"{t:,}", f"{t / d_1:.2g}"]
            error_cells = [f"{left:.1e}", f"{prediction:.1e}", f"{left / prediction:.2g}"]
            yield [*run_cells, *error_cells, f"{norms[t]:.2g}", f"{off[t]:.2f}"]


def drift_rows(problem: Problem) -> Iterator[list[str]]:
    """Yield a row for every width: ρ / λ_0 at the start, and the round at which it reaches 1."""
    eta = recommended_step(problem, M)
    lambda_0 = least_eigenvalue(problem, M)
    for d_1, from_zero in product(DRIFT_WIDTHS, (False, True)):
        settings: dict[str, Any] = {
            "d_1": d_1,
            "m": M,
            "step_size": eta,
            "rounds": d_1 // 4,
            "from_zero": from_zero,
        }
        first = math.nan
        reached = math.nan
        for t, numbers in enumerate(
            train_fast(problem, **settings, seed=0, check_every=CHECK_EVERY)
        ):
            if t == 0:
                first = numbers[DRIFT] / lambda_0
            if numbers[DRIFT] >= lambda_0:
                reached = t
                break
        rounds_cells = [f"{reached:,.0f}", f"{reached / d_1:.2g}"]
        yield [f"{d_1:,}", name_of(from_zero), f"{first:.2f}", *rounds_cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=LOOKS[-1])
    args = parser.parse_args()
    started = time.monotonic()
    problem = complete(6)
    looks = [t for t in LOOKS if t <= args.rounds]
    titles = ("d_1", "y", "rounds", "rounds / d_1", "error", "… predicted", "ratio")
    titles += ("Σ‖h_r‖²", "neurons off")
    print(table(titles, error_rows(problem, args.seeds, looks)), flush=True)
    titles_of_drift = ("d_1", "y", "ρ/λ_0 at the start", "rounds to ρ = λ_0", "… / d_1")
    print(f"\n{table(titles_of_drift, drift_rows(problem))}")
    print(f"\n{args.seeds} seeds, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
