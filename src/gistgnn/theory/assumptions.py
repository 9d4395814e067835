"""Whether the assumptions of the analysis hold on a given graph (section 4, appendix C.2)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gistgnn.graphs import Graph
from gistgnn.theory.kernel import least_eigenvalue
from gistgnn.theory.limit import angles
from gistgnn.theory.problem import Problem

ROUNDING = 1e-10  # an eigenvalue of Ā, an angle or an excess below it is zero up to float64's rounding


@dataclass(frozen=True)
class Check:
    """One assumption on one graph.

    Attributes:
        name: what is assumed.
        holds: the verdict.
        value: the number that decides it.
        detail: one line for a person: the number, what it is compared with, and where it comes from.
    """

    name: str
    holds: bool
    value: float
    detail: str

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"name": self.name, "holds": self.holds, "value": self.value, "detail": self.detail}


def check(graph: Graph | Problem, sub_gcns: int = 1) -> list[Check]:
    """Check every assumption of the theorem on a graph.

    Args:
        graph: a graph, whose classes become targets as `Problem.from_graph` has it, or a problem with its own.
        sub_gcns: m, to which λ_0 is inversely proportional.

    Returns:
        λ_min(Ā), degree balance, bounded inputs, bounded rows of X̂, no parallel rows, bounded targets, and λ_0 > 0,
        which follows where all hold.

    Raises:
        InputError: see `Problem.from_graph`.
    """
    problem = graph if isinstance(graph, Problem) else Problem.from_graph(graph)
    epsilon, p = degree_balance(problem.degrees)
    return [
        _positive_definite(problem),
        _balanced(problem, epsilon, p),
        _bounded_inputs(problem, epsilon),
        _bounded_rows(problem),
        _no_parallel_rows(problem),
        _bounded_targets(problem),
        _positive_kernel(problem, sub_gcns),
    ]


def degree_balance(degrees: Tensor) -> tuple[float, int]:
    """Return the least ε, and its p, with (1 − ε)² p <= D_ii <= (1 + ε)² p for all i, p >= 1 an integer.

    For a given p the least ε is max(1 − √(D_min / p), √(D_max / p) − 1); one grows with p and the other falls, so the
    best integer is beside the real p at which they are equal, √p = (√D_min + √D_max) / 2. An isolated node gives ε = 1.

    Args:
        degrees: [n].
    """
    low, high = math.sqrt(float(degrees.min())), math.sqrt(float(degrees.max()))
    best = ((low + high) / 2.0) ** 2

    def least(p: int) -> float:
        return max(1.0 - low / math.sqrt(p), high / math.sqrt(p) - 1.0, 0.0)

    p = min((max(1, math.floor(best)), max(1, math.ceil(best))), key=least)
    return least(p), p


def sharpest_angle(x_hat: Tensor) -> float:
    """Return the least angle between the lines through two rows, in [0, π/2]; 0 where a row is zero, π/2 of one row.

    Args:
        x_hat: [n, d].
    """
    if bool((x_hat.norm(dim=1) == 0).any()):
        return 0.0
    between = angles(x_hat)
    lines = torch.minimum(between, math.pi - between)
    lines.fill_diagonal_(math.pi / 2)
    return float(lines.min())


def _positive_definite(problem: Problem) -> Check:
    least = float(torch.linalg.eigvalsh(problem.a_bar)[0])
    least = least if abs(least) > ROUNDING else 0.0
    detail = f"λ_min(Ā) = {least:.3g}; it is 0 where a component with an edge is bipartite"
    return Check("λ_min(Ā) ≠ 0", least > 0, least, detail)


def _balanced(problem: Problem, epsilon: float, p: int) -> Check:
    low, high = int(problem.degrees.min()), int(problem.degrees.max())
    detail = f"degrees from {low} to {high}: the least ε is {epsilon:.3g}, at p = {p}; it has to be below 1"
    return Check("balanced degrees", epsilon < 1.0, epsilon, detail)


def _bounded_inputs(problem: Problem, epsilon: float) -> Check:
    largest, allowed = float(problem.x.norm(dim=1).max()), (1.0 - epsilon) / 2.0
    detail = f"the longest x_i is {largest:.3g}; with ε = {epsilon:.3g} it may be (1 − ε) / 2 = {allowed:.3g}"
    holds = largest <= allowed + ROUNDING
    if not holds and allowed > 0:
        detail += f": multiply X by {allowed / largest:.3g}"
    return Check("‖x_i‖ ≤ (1 − ε) / 2", holds, largest, detail)


def _bounded_rows(problem: Problem) -> Check:
    largest = float(problem.x_hat.norm(dim=1).max())
    detail = f"the longest row of X̂ = ĀX is {largest:.3g}, and may be 1"
    return Check("‖x̂_i‖ ≤ 1", largest <= 1.0 + ROUNDING, largest, detail)


def _no_parallel_rows(problem: Problem) -> Check:
    angle = sharpest_angle(problem.x_hat)
    detail = f"the sharpest angle between two rows of X̂ is {angle:.3g}; it is 0 where they are parallel or one is zero"
    return Check("no parallel x̂_i", angle > ROUNDING, angle, detail)


def _bounded_targets(problem: Problem) -> Check:
    C = float(problem.y.abs().max())
    return Check("bounded targets", math.isfinite(C), C, f"|y_i| ≤ C = {C:.3g}")


def _positive_kernel(problem: Problem, m: int) -> Check:
    lambda_0 = least_eigenvalue(problem, m)
    detail = f"λ_0 = λ_min(G^∞) = {lambda_0:.3g} with m = {m}: G^∞ is positive definite where all of the above hold"
    return Check("λ_0 > 0", lambda_0 > 0, lambda_0, detail if lambda_0 > 0 else f"{detail}, up to float64's rounding")
