"""Problems to try the theory on: small built-in graphs, any other graph, or a part of one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from scipy.sparse.csgraph import breadth_first_order

from gistgnn import InputError
from gistgnn.graphs import CSR, Graph, load
from gistgnn.theory.assumptions import degree_balance
from gistgnn.theory.problem import MOST_NODES, Problem, aggregation


def ring(n: int, d: int | None = None, seed: int = 0, jumps: tuple[int, ...] = (1, 2)) -> Problem:
    """Return a ring of n >= 3 nodes, with d (None: n) random inputs of norm 1/2 and random targets of ±1.

    Each node is a neighbour of the nodes at the distances `jumps`. Jumps of 1 and 2 make triangles, so that the graph
    is not bipartite. All degrees are equal, and no row of X̂ is longer than 1.
    """
    if n < 3:
        raise InputError(f"n is {n}, expected at least 3 nodes in a ring")
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n if d is None else d, generator=rng, dtype=torch.float64, device="cpu")
    y = torch.randn(n, generator=rng, dtype=torch.float64, device="cpu").sign()
    nodes = torch.arange(n, device="cpu")
    pairs = [torch.stack([nodes, (nodes + step) % n]) for jump in jumps for step in (jump, -jump)]
    return Problem(0.5 * x / x.norm(dim=1, keepdim=True), torch.cat(pairs, dim=1).unique(dim=1), y)


def complete(n: int, seed: int = 0) -> Problem:
    """Return the complete graph of n >= 3 nodes, with inputs that make the rows of X̂ orthogonal, and targets of ±1."""
    y = ring(n, 1, seed).y
    edges = (~torch.eye(n, dtype=torch.bool, device="cpu")).nonzero().T
    x = torch.linalg.inv(aggregation(edges, n))
    return Problem(0.5 * x / x.norm(dim=1).max(), edges, y)


def karate() -> Problem:
    """Return Zachary's karate club with one-hot inputs; the targets are its four communities, spread over [-1, 1]."""
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
        nodes: take only this number of nodes, those nearest to the node of highest degree; None: the whole graph.
        scaled: whether to multiply X so that its longest row is (1 − ε) / 2, the most that is assumed.

    Raises:
        InputError: the name is unknown, or the graph cannot be used.
    """
    if not is_built_in(name):
        graph = load(name, data_root)
        problem = Problem.from_graph(graph if nodes is None else nearest_nodes(graph, nodes))
    elif nodes is not None:
        raise InputError(f"nodes is {nodes}, but {name} is a built-in graph that is used whole: give no nodes")
    else:
        problem = _built_in(name)
    return scale_inputs(problem) if scaled else problem


def _built_in(name: str) -> Problem:
    kind, _, size = name.lower().partition(":")
    if kind == "karate":
        return karate()
    least = 3 if kind == "complete" else 5
    n = int(size) if size.isdecimal() else 0
    if not least <= n <= MOST_NODES:
        expected = f"expected {kind}:N with N an integer from {least} to {MOST_NODES}"
        raise InputError(f"{kind}:{size} is not a graph, {expected}")
    return complete(n) if kind == "complete" else ring(n)


def nearest_nodes(graph: Graph, nodes: int) -> Graph:
    """Return the subgraph of the first nodes that a breadth-first search from the node of highest degree visits."""
    from torch_geometric.utils import subgraph, to_scipy_sparse_matrix

    edge_index, n = graph.edge_index.cpu(), graph.num_nodes
    hub = int(torch.bincount(edge_index[1], minlength=n).argmax())
    matrix = to_scipy_sparse_matrix(edge_index, num_nodes=n).tocsr()
    order = breadth_first_order(matrix, hub, return_predecessors=False)
    if not 1 <= nodes <= len(order):
        raise InputError(f"nodes is {nodes}, expected 1 to {len(order):,}, as many as can be reached from node {hub}")
    kept = torch.as_tensor(order[:nodes].astype("int64")).sort().values
    edges, _ = subgraph(kept, edge_index, relabel_nodes=True, num_nodes=n)
    part: dict[str, Any] = {key: getattr(graph, key).cpu()[kept] for key in ("x", "y", "train", "val", "test")}
    part |= dict.fromkeys(graph.edge_data)  # the problems have no edge data
    return replace(graph, edges=CSR.of(edges, nodes), name=f"{graph.name}, {nodes} nodes", **part)


def scale_inputs(problem: Problem) -> Problem:
    """Return the problem with X multiplied so that its longest row is (1 − ε) / 2."""
    epsilon, _ = degree_balance(problem.degrees)
    longest = float(problem.x.norm(dim=1).max())
    if epsilon >= 1.0 or longest == 0.0:
        why = "a node without neighbours" if longest else "X is zero"
        raise InputError(f"X cannot be scaled to rows of (1 − ε) / 2: {why}; take a part of the graph without it")
    return replace(problem, x=problem.x * ((1.0 - epsilon) / (2.0 * longest)))


def in_basis_of_rows(problem: Problem) -> Problem:
    """Return the problem with X in an orthonormal basis of its rows, [n, n], if it has more features than nodes.

    The analysis depends on X through XX' alone, which stays, and training has the same distribution at n/d of the cost.
    """
    if problem.d <= problem.n:
        return problem
    return replace(problem, x=torch.linalg.qr(problem.x.T).R.T.contiguous())
