"""Small problems on which the assumptions of the analysis hold."""

import torch
from torch import Tensor

from gistgnn.theory import Problem


def circulant(n: int, *jumps: int) -> Tensor:
    """The edges of a ring in which every node has neighbours at these distances, both directions: a regular graph."""
    at = torch.arange(n)
    pairs = [torch.stack([at, (at + s) % n]) for jump in jumps for s in (jump, -jump)]
    return torch.cat(pairs, dim=1).unique(dim=1)


def problem(n: int = 8, d: int = 5, seed: int = 0, *jumps: int) -> Problem:
    """A regular graph that is not bipartite, inputs of norm 1/2 (so that ‖x̂_i‖ <= 1) and random targets of +-1."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=rng, dtype=torch.float64)
    y = torch.randn(n, generator=rng, dtype=torch.float64).sign()
    return Problem(0.5 * x / x.norm(dim=1, keepdim=True), circulant(n, *(jumps or (1, 2))), y)


def orthogonal(n: int = 6, seed: int = 0) -> Problem:
    """The complete graph with x̂_i orthonormal up to a common factor: H^∞ is a multiple of I, and λ_0 is large.

    The rows of X have norm 1/2 or less, so that all assumptions hold, with ε = 0.
    """
    base = problem(n, n, seed, *range(1, n // 2 + 1))
    x = torch.linalg.inv(base.a_bar)
    return Problem(0.5 * x / x.norm(dim=1).max(), base.edge_index, base.y)


def slope(xs: list[int], ys: list[float]) -> float:
    """The exponent b of y = a x^b, by least squares on logarithms."""
    u, v = torch.tensor(xs).double().log(), torch.tensor(ys).double().log()
    u, v = u - u.mean(), v - v.mean()
    return float((u @ v) / (u @ u))
