"""Small problems on which the assumptions of the analysis hold."""

from gistgnn.theory import Problem, complete, ring


def problem(n: int = 8, d: int = 5, seed: int = 0, *jumps: int) -> Problem:
    """Return a ring; with the default jumps it is not bipartite."""
    return ring(n, d, seed, jumps or (1, 2))


def orthogonal(n: int = 6, seed: int = 0) -> Problem:
    """Return a complete graph, for which H^∞ is a multiple of I and λ_0 is large."""
    return complete(n, seed)
