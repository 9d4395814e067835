"""What the theory predicts for a problem before it is trained: the second half of `gistgnn theory check`."""

import math
from typing import Any

from gistgnn import InputError
from gistgnn.theory.a_priori import GuaranteedWidth
from gistgnn.theory.argument_checks import LARGEST, check_fraction, check_lambda_0, check_sizes, check_stable
from gistgnn.theory.bounds import Bound
from gistgnn.theory.kernel import expected_initial_error, greatest_eigenvalue, least_eigenvalue, recommended_step
from gistgnn.theory.leading_order import LeadingOrder
from gistgnn.theory.lemmas import kernel_width, local_factor, proof_step
from gistgnn.theory.problem import Problem

SAMPLED_NODES = 500  # the most nodes for "leading", whose cost for each sample is the cube of their number
SAMPLES = 2000


def predict(
    problem: Problem,
    sub_gcns: int,
    local_steps: int,
    width: int,
    *,
    step_size: float | None = None,
    gamma: float = 0.5,
    rounds: int = 100,
    delta: float = 0.1,
) -> dict[str, Any]:
    """Predict E‖y − ŷ(t)‖² of the training of a problem, as `gistgnn theory check --json` prints it.

    If step_size is None, η is `recommended_step`. Where η > 1/λ_max(G^∞), what needs a smaller one is None.

    Raises:
        InputError: λ_0 is 0, η is not below 2/λ_max(G^∞), or `check_settings` or `Bound` refuses a value.
    """
    check_settings(sub_gcns, local_steps, width, step_size, gamma, rounds, delta)
    m, zeta = sub_gcns, local_steps
    lambda_0, lambda_max = check_lambda_0(least_eigenvalue(problem, m)), greatest_eigenvalue(problem, m)
    eta = recommended_step(problem, m) if step_size is None else check_stable(problem, m, step_size)
    contracts, small = eta * lambda_max <= 1.0, problem.n <= SAMPLED_NODES
    printed, corrected = (Bound(problem, m, zeta, eta, width, gamma, printed=flag) for flag in (True, False))
    initial = expected_initial_error(problem, m)
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
        "local_factor": local_factor(eta, lambda_0) if contracts else None,  # 1 − ηλ_0/2, for a local step
        "round_factor": printed.contraction,  # γ + (1 − γ)(1 − ηλ_0/2)^ζ, for a round (the theorem)
        "limit_factor": (1.0 - eta * lambda_0) ** (2 * zeta) if contracts else None,  # for a round as d_1 → ∞
        "neighbourhood": printed.neighbourhood,  # the theorem's bound as t → ∞, with the printed constants
        "corrected_neighbourhood": corrected.neighbourhood,
        # the plateau for rounds well below d_1 (heuristic)
        "leading": LeadingOrder.of(problem, width, m, zeta, eta, samples=SAMPLES).remaining if small else None,
        "kernel_width": kernel_width(problem, m, rounds, delta),  # a d_1 at which Lemma PD_GISTK holds
        "theorem_width": corrected.width(rounds, delta, initial),  # that the proof of the theorem needs; it has a gap
        # a d_1 that keeps ρ <= λ_0/2 in T rounds (proved)
        "guaranteed_width": GuaranteedWidth(problem, m, zeta, eta, rounds, delta).width if contracts else None,
        "rounds": rounds,
        "delta": delta,
    }


def check_settings(
    sub_gcns: int, local_steps: int, width: int, step_size: float | None, gamma: float, rounds: int, delta: float
) -> None:
    """Raise InputError if a number is out of range for every graph."""
    check_sizes(sub_gcns=sub_gcns, local_steps=local_steps, rounds=rounds)
    if not sub_gcns <= width <= LARGEST:
        raise InputError(f"width is {width}, expected m = {sub_gcns} or more, a neuron for every sub-GCN, to {LARGEST}")
    if step_size is not None and not 0 < step_size < math.inf:
        raise InputError(f"step_size is {step_size:g}, expected a number above 0")
    check_fraction("gamma", gamma)
    check_fraction("delta", delta)


def rounds_to(share: float, factor: float) -> int | None:
    """Return how many rounds bring an error to a share of itself, if each multiplies it by factor; None if never."""
    if factor >= 1.0:
        return None
    return 1 if factor <= share else math.ceil(math.log(share) / math.log(factor))
