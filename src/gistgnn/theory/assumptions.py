"""Whether the assumptions of the analysis hold on a graph (section 4, appendix C.2).

Some graphs to try it on are here, too.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scipy.sparse.csgraph import breadth_first_order
from torch import Tensor

from gistgnn import InputError
from gistgnn.graphs import CSR, Graph, load
from gistgnn.theory.problem import MOST_NODES, Problem, aggregation, angles, least_eigenvalue

# Smaller eigenvalues of Ā, angles and excesses are zero up to the rounding of float64.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Check:
    """One assumption, checked on one graph."""

    name: str
    holds: bool
    value: float  # the number that decides it
    detail: str  # what the number is, and what it is compared with


def check(graph: Graph | Problem, sub_gcns: int = 1) -> list[Check]:
    """Check every assumption of the theorem on a graph: the last, λ_0 > 0, follows from the others.

    The classes of a `Graph` become targets as in `Problem.from_graph`, which may refuse it.
    """
    problem = graph if isinstance(graph, Problem) else Problem.from_graph(graph)
    epsilon, p = degree_balance(problem.degrees)
    low = int(problem.degrees.min())
    high = int(problem.degrees.max())
    least = float(torch.linalg.eigvalsh(problem.a_bar)[0])
    least = least if abs(least) > ROUNDING else 0.0
    longest = float(problem.x.norm(dim=1).max())
    allowed = (1.0 - epsilon) / 2.0
    bounded = longest <= allowed + ROUNDING
    advice = "" if bounded or allowed <= 0 else f": multiply X by {allowed / longest:.3g}"
    row = float(problem.x_hat.norm(dim=1).max())
    angle = smallest_angle(problem.x_hat)
    C = float(problem.y.abs().max())
    lambda_0 = least_eigenvalue(problem, sub_gcns)
    definite = f"λ_min(Ā) = {least:.3g}; it is 0 if a component with an edge is bipartite"
    balance = (
        f"degrees from {low} to {high}: the least ε is {epsilon:.3g}, at p = {p}; it must be below "
        "1"
    )
    limit = (
        f"the longest x_i is {longest:.3g}; with ε = {epsilon:.3g} at most (1 − ε) / 2 = "
        f"{allowed:.3g} is allowed"
    )
    parallel = (
        f"the smallest angle between two rows of X̂ is {angle:.3g}; it is 0 if two are "
        "parallel or one is zero"
    )
    positive = (
        f"λ_0 = λ_min(G^∞) = {lambda_0:.3g} with m = {sub_gcns}; it is positive if all of "
        "the above hold"
    )
    positive += "" if lambda_0 > 0 else ", up to the rounding of float64"
    return [
        Check("λ_min(Ā) ≠ 0", least > 0, least, definite),
        Check("balanced degrees", epsilon < 1.0, epsilon, balance),
        Check("‖x_i‖ ≤ (1 − ε) / 2", bounded, longest, limit + advice),
        Check(
            "‖x̂_i‖ ≤ 1",
            row <= 1.0 + ROUNDING,
            row,
            f"the longest row of X̂ = ĀX is {row:.3g}; at most 1 is allowed",
        ),
        Check("no parallel x̂_i", angle > ROUNDING, angle, parallel),
        Check("bounded targets", math.isfinite(C), C, f"|y_i| ≤ C = {C:.3g}"),
        Check("λ_0 > 0", lambda_0 > 0, lambda_0, positive),
    ]


def degree_balance(degrees: Tensor) -> tuple[float, int]:
    """Return the least ε, and its integer p >= 1 (balanced_degree).

    They satisfy (1 − ε)² p <= D_ii <= (1 + ε)² p for all i.
    """
    # The best p is beside the real one that makes both sides tight: √p = (√D_min + √D_max) / 2.
    low = math.sqrt(float(degrees.min()))
    high = math.sqrt(float(degrees.max()))
    best = ((low + high) / 2.0) ** 2

    def least(p: int) -> float:
        return max(1.0 - low / math.sqrt(p), high / math.sqrt(p) - 1.0, 0.0)

    p = min((max(1, math.floor(best)), max(1, math.ceil(best))), key=least)
    return least(p), p


def smallest_angle(x_hat: Tensor) -> float:
    """Return the least angle between the lines through two rows, in [0, π/2].

    It is 0 if a row is zero, and π/2 for one row.
    """
    if bool((x_hat.norm(dim=1) == 0).any()):
        return 0.0
    between = angles(x_hat)
    lines = torch.minimum(between, math.pi - between)
    lines.fill_diagonal_(math.pi / 2)
    return float(lines.min())


def ring(n: int, d: int | None = None, seed: int = 0, jumps: tuple[int, ...] = (1, 2)) -> Problem:
    """Return a ring of n >= 3 nodes, with d random inputs of norm 1/2.

    `d` defaults to n. The targets are random, ±1.
    """
    # Neighbours are at the distances `jumps`: 1 and 2 make triangles, so that the graph is not
    # bipartite. All degrees are equal, and no row of X̂ is longer than 1.
    if n < 3:
        raise InputError(f"n is {n}, expected at least 3 nodes in a ring")
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n if d is None else d, generator=rng, dtype=torch.float64, device="cpu")
    y = torch.randn(n, generator=rng, dtype=torch.float64, device="cpu").sign()
    nodes = torch.arange(n, device="cpu")
    pairs = [torch.stack([nodes, (nodes + step) % n]) for jump in jumps for step in (jump, -jump)]
    return Problem(0.5 * x / x.norm(dim=1, keepdim=True), torch.cat(pairs, dim=1).unique(dim=1), y)


def complete(n: int, seed: int = 0) -> Problem:
    """Return the complete graph of n >= 3 nodes, with targets of ±1.

    The inputs make the rows of X̂ orthogonal.
    """
    y = ring(n, 1, seed).y
    edges = (~torch.eye(n, dtype=torch.bool, device="cpu")).nonzero().T
    x = torch.linalg.inv(aggregation(edges, n))
    return Problem(0.5 * x / x.norm(dim=1).max(), edges, y)


def karate() -> Problem:
    """Return Zachary's karate club with one-hot inputs.

    The targets are its four communities, spread over [-1, 1].
    """
    from torch_geometric.datasets import KarateClub

    data = KarateClub()[0]
    return Problem(data.x.double(), data.edge_index, 2.0 * data.y.double() / 3.0 - 1.0)


def is_built_in(name: str) -> bool:
    """Return whether a name means one of the built-in graphs: complete:N, ring:N or karate."""
    kind, colon, _ = name.lower().partition(":")
    return kind in ("complete", "ring") if colon else kind == "karate"


def load_problem(
    name: str, data_root: str | Path = "data", *, nodes: int | None = None, scaled: bool = False
) -> Problem:
    """Return the problem of that name.

    Args:
        name: complete:N, ring:N, karate, or what `gistgnn.graphs.load` takes.
        data_root: the folder of the named data sets.
        nodes: take only this number of nodes, those nearest to the node of highest degree. Defaults
            to the whole graph.
        scaled: whether to multiply X so that its longest row is (1 − ε) / 2, the most that is
            assumed.
    """
    kind, _, size = name.lower().partition(":")
    if not is_built_in(name):
        graph = load(name, data_root)
        problem = Problem.from_graph(graph if nodes is None else nearest_nodes(graph, nodes))
    elif nodes is not None:
        raise InputError(
            f"nodes is {nodes}, but {name} is a built-in graph that is used whole: give no nodes"
        )
    elif kind == "karate":
        problem = karate()
    else:
        n = int(size) if size.isdecimal() else 0
        least = 3 if kind == "complete" else 5
        if not least <= n <= MOST_NODES:
            expected = f"expected {kind}:N with N an integer from {least} to {MOST_NODES:,}"
            raise InputError(f"{kind}:{size} is not a graph, {expected}")
        problem = complete(n) if kind == "complete" else ring(n)
    return scale_inputs(problem) if scaled else problem


def nearest_nodes(graph: Graph, nodes: int) -> Graph:
    """Return the subgraph of the nodes nearest to the node of highest degree.

    They are the first ones that a breadth-first search visits.
    """
    from torch_geometric.utils import subgraph, to_scipy_sparse_matrix

    edge_index = graph.edge_index.cpu()
    n = graph.num_nodes
    hub = int(torch.bincount(edge_index[1], minlength=n).argmax())
    matrix = to_scipy_sparse_matrix(edge_index, num_nodes=n).tocsr()
    order = breadth_first_order(matrix, hub, return_predecessors=False)
    if not 1 <= nodes <= len(order):
        raise InputError(
            f"nodes is {nodes}, expected 1 to {len(order):,}, as many as can be reached from node "
            f"{hub}"
        )
    nearest = torch.as_tensor(order[:nodes].astype("int64")).sort().values
    edges, _ = subgraph(nearest, edge_index, relabel_nodes=True, num_nodes=n)
    part: dict[str, Any] = {
        key: getattr(graph, key).cpu()[nearest] for key in ("y", "train", "val", "test")
    }
    # Sparse features: torch takes rows of a COO tensor, and of no CSR tensor.
    x = graph.x.cpu()
    is_dense = x.layout is torch.strided
    part["x"] = x[nearest] if is_dense else x.to_sparse_coo().index_select(0, nearest).to_dense()
    part |= dict.fromkeys(graph.edge_data)  # the problems have no edge data
    return replace(graph, edges=CSR.of(edges, nodes), name=f"{graph.name}, {nodes} nodes", **part)


def scale_inputs(problem: Problem) -> Problem:
    """Return the problem with X multiplied so that its longest row is (1 − ε) / 2."""
    epsilon, _ = degree_balance(problem.degrees)
    longest = float(problem.x.norm(dim=1).max())
    if epsilon >= 1.0 or longest == 0.0:
        why = "a node without neighbours" if longest else "X is zero"
        raise InputError(
            f"X cannot be scaled to rows of (1 − ε) / 2: {why}; take a part of the graph without it"
        )
    return replace(problem, x=problem.x * ((1.0 - epsilon) / (2.0 * longest)))


def in_basis_of_rows(problem: Problem) -> Problem:
    """Return the problem with X in an orthonormal basis of its rows, [n, n].

    A problem with no more features than nodes stays as it is.
    """
    # The analysis depends on X through XX' alone, which stays: training has the same distribution
    # at n/d of the cost.
    if problem.d <= problem.n:
        return problem
    return replace(problem, x=torch.linalg.qr(problem.x.T).R.T.contiguous())
