"""Small graphs to try the theory on, and any other graph, or a part of it, as a problem."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from gistgnn.errors import InputError
from gistgnn.graphs import Graph, load
from gistgnn.theory.assumptions import degree_balance
from gistgnn.theory.problem import MOST_NODES, Problem, aggregation

INSTANCES = ("complete:N", "ring:N", "karate")


def ring(n: int, d: int | None = None, seed: int = 0, jumps: tuple[int, ...] = (1, 2)) -> Problem:
    """Return a ring whose nodes have neighbours at some distances, random inputs of norm 1/2 and targets of ±1.

    Degrees are equal and rows of X̂ no longer than 1; jumps of 1 and 2 make triangles, so that it is not bipartite.

    Args:
        n: nodes.
        d: input features; None: n.
        seed: of inputs and targets.
        jumps: distances.

    Raises:
        InputError: n is below 3, where a ring has loops or double edges.
    """
    if n < 3:
        raise InputError(f"n is {n}, expected at least 3 nodes of a ring")
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n if d is None else d, generator=rng, dtype=torch.float64, device="cpu")
    y = torch.randn(n, generator=rng, dtype=torch.float64, device="cpu").sign()
    at = torch.arange(n, device="cpu")
    pairs = [torch.stack([at, (at + step) % n]) for jump in jumps for step in (jump, -jump)]
    return Problem(0.5 * x / x.norm(dim=1, keepdim=True), torch.cat(pairs, dim=1).unique(dim=1), y)


def complete(n: int, seed: int = 0) -> Problem:
    """Return the complete graph with inputs that make the rows of X̂ orthogonal, and random targets of ±1.

    H^∞ is a multiple of I, and λ_0 large: (1 − 1/(n − 1))² / 4 of λ_max(G^∞).

    Args:
        n: nodes, at least 3.
        seed: of the targets.
    """
    y = ring(n, 1, seed).y
    edges = (~torch.eye(n, dtype=torch.bool, device="cpu")).nonzero().T
    x = torch.linalg.inv(aggregation(edges, n))
    return Problem(0.5 * x / x.norm(dim=1).max(), edges, y)


def karate() -> Problem:
    """Return Zachary's karate club with one-hot inputs and its four communities, from -1 to 1, as targets."""
    from torch_geometric.datasets import KarateClub

    data = KarateClub()[0]
    return Problem(data.x.double(), data.edge_index, 2.0 * data.y.double() / 3.0 - 1.0)


def load_problem(
    name: str, data_root: str | Path = "data", *, nodes: int | None = None, scaled: bool = False
) -> Problem:
    """Return the problem of a name.

    Args:
        name: of `INSTANCES`, or what `gistgnn.graphs.load` takes.
        data_root: where named data sets are.
        nodes: this many nodes alone, those nearest to the one of most neighbours (see `nearest`).
        scaled: see `scale`.

    Raises:
        InputError: an unknown name, a number of nodes that cannot be had, or see `Problem.from_graph` and `scale`.
    """
    if is_small(name):
        if nodes is not None:
            raise InputError(f"nodes is {nodes}, but {name} is one of the theory's own small graphs: give no nodes")
        kind, _, size = name.lower().partition(":")
        problem = karate() if kind == "karate" else _sized(kind, size)
    else:
        graph = load(name, data_root)
        problem = Problem.from_graph(graph if nodes is None else nearest(graph, nodes))
    return scale(problem) if scaled else problem


def is_small(name: str) -> bool:
    """Whether it names one of `INSTANCES`."""
    kind, colon, _ = name.lower().partition(":")
    return kind in ("complete", "ring") if colon else kind == "karate"


def nearest(graph: Graph, nodes: int) -> Graph:
    """Return the subgraph of the nodes that a breadth-first search from the node of most neighbours meets first.

    Raises:
        InputError: fewer nodes can be reached, or not even one is asked for.
    """
    source, target = graph.edge_index.cpu().numpy()
    matrix = coo_array((source * 0.0 + 1.0, (source, target)), shape=(graph.num_nodes, graph.num_nodes)).tocsr()
    hub = int(torch.bincount(graph.edge_index[1].cpu(), minlength=graph.num_nodes).argmax())
    order = breadth_first_order(matrix, hub, directed=True, return_predecessors=False)
    if not 1 <= nodes <= len(order):
        raise InputError(f"nodes is {nodes}, expected 1 to {len(order):,}: as many can be reached from node {hub}")
    from torch_geometric.utils import subgraph

    kept = torch.as_tensor(order[:nodes].astype("int64")).sort().values
    edges, _ = subgraph(kept, graph.edge_index.cpu(), relabel_nodes=True, num_nodes=graph.num_nodes)
    part: dict[str, Any] = {key: getattr(graph, key).cpu()[kept] for key in ("x", "y", "train", "val", "test")}
    return replace(graph, edge_index=edges, name=f"{graph.name}, {nodes} nodes", **part)


def scale(problem: Problem) -> Problem:
    """Return the problem with X times the number that makes its longest row (1 − ε) / 2, as the assumption allows.

    Raises:
        InputError: ε is 1 (a node without neighbours), or X is zero.
    """
    epsilon, _ = degree_balance(problem.degrees)
    longest = float(problem.x.norm(dim=1).max())
    if epsilon >= 1.0 or longest == 0.0:
        why = "a node without neighbours" if longest else "X is zero"
        raise InputError(f"X cannot be scaled to rows of (1 − ε) / 2: {why}; take a part of the graph without it")
    return replace(problem, x=problem.x * ((1.0 - epsilon) / (2.0 * longest)))


def _sized(kind: str, size: str) -> Problem:
    least = 3 if kind == "complete" else 5
    n = int(size) if size.isdecimal() else 0
    if not least <= n <= MOST_NODES:
        raise InputError(
            f"{kind}:{size} is not a graph, expected {kind}:N with N an integer from {least} to {MOST_NODES}"
        )
    return complete(n) if kind == "complete" else ring(n)
