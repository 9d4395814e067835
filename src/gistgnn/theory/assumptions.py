"""Whether the assumptions of the analysis hold on a graph (section 4, appendix C.2)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.graphs import Graph
from gistgnn.theory.gram import angles
from gistgnn.theory.kernel import least_eigenvalue
from gistgnn.theory.problem import Problem

ROUNDING = 1e-10  # smaller eigenvalues of Ā, angles and excesses are zero up to the rounding of float64


@dataclass(frozen=True)
class Check:
    """One assumption, checked on one graph.

    Attributes:
        name: the assumption.
        holds: whether it holds.
        value: the number that decides it.
        detail: one line that says what the number is, and what it is compared with.
    """

    name: str
    holds: bool
    value: float
    detail: str


def check(graph: Graph | Problem, sub_gcns: int = 1) -> list[Check]:
    """Check every assumption of the theorem on a graph: the last, λ_0 > 0, follows from the others.

    Args:
        graph: a problem, or a graph, whose classes become targets as in `Problem.from_graph`.
        sub_gcns: m; λ_0 is proportional to 1/m.

    Raises:
        InputError: see `Problem.from_graph`.
    """
    problem = graph if isinstance(graph, Problem) else Problem.from_graph(graph)
    epsilon, p = degree_balance(problem.degrees)
    low, high = int(problem.degrees.min()), int(problem.degrees.max())
    least = float(torch.linalg.eigvalsh(problem.a_bar)[0])
    least = least if abs(least) > ROUNDING else 0.0
    longest, allowed = float(problem.x.norm(dim=1).max()), (1.0 - epsilon) / 2.0
    bounded = longest <= allowed + ROUNDING
    advice = "" if bounded or allowed <= 0 else f": multiply X by {allowed / longest:.3g}"
    row, angle = float(problem.x_hat.norm(dim=1).max()), smallest_angle(problem.x_hat)
    C, lambda_0 = float(problem.y.abs().max()), least_eigenvalue(problem, sub_gcns)
    definite = f"λ_min(Ā) = {least:.3g}; it is 0 if a component with an edge is bipartite"
    balance = f"degrees from {low} to {high}: the least ε is {epsilon:.3g}, at p = {p}; it must be below 1"
    limit = f"the longest x_i is {longest:.3g}; with ε = {epsilon:.3g} at most (1 − ε) / 2 = {allowed:.3g} is allowed"
    parallel = f"the smallest angle between two rows of X̂ is {angle:.3g}; it is 0 if two are parallel or one is zero"
    positive = f"λ_0 = λ_min(G^∞) = {lambda_0:.3g} with m = {sub_gcns}; it is positive if all of the above hold"
    positive += "" if lambda_0 > 0 else ", up to the rounding of float64"
    return [
        Check("λ_min(Ā) ≠ 0", least > 0, least, definite),
        Check("balanced degrees", epsilon < 1.0, epsilon, balance),
        Check("‖x_i‖ ≤ (1 − ε) / 2", bounded, longest, limit + advice),
        Check("‖x̂_i‖ ≤ 1", row <= 1.0 + ROUNDING, row, f"the longest row of X̂ = ĀX is {row:.3g}; at most 1 is allowed"),
        Check("no parallel x̂_i", angle > ROUNDING, angle, parallel),
        Check("bounded targets", math.isfinite(C), C, f"|y_i| ≤ C = {C:.3g}"),
        Check("λ_0 > 0", lambda_0 > 0, lambda_0, positive),
    ]


def degree_balance(degrees: Tensor) -> tuple[float, int]:
    """Return the least ε, and its integer p >= 1, with (1 − ε)² p <= D_ii <= (1 + ε)² p for all i (balanced_degree).

    The best p is beside the real one that makes both sides tight: √p = (√D_min + √D_max) / 2.
    """
    low, high = math.sqrt(float(degrees.min())), math.sqrt(float(degrees.max()))
    best = ((low + high) / 2.0) ** 2

    def least(p: int) -> float:
        return max(1.0 - low / math.sqrt(p), high / math.sqrt(p) - 1.0, 0.0)

    p = min((max(1, math.floor(best)), max(1, math.ceil(best))), key=least)
    return least(p), p


def smallest_angle(x_hat: Tensor) -> float:
    """Return the least angle between the lines through two rows, in [0, π/2]: 0 if a row is zero, π/2 for one row."""
    if bool((x_hat.norm(dim=1) == 0).any()):
        return 0.0
    between = angles(x_hat)
    lines = torch.minimum(between, math.pi - between)
    lines.fill_diagonal_(math.pi / 2)
    return float(lines.min())
