"""Edges of a random graph with planted communities and power-law degrees, drawn chunk by chunk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Changing this changes the graph: the streams are consumed chunk by chunk.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Level:
    """One level of a hierarchy of communities, and the edges that stay within it."""

    share: float  # of all edges
    bounds: Ints  # [parts + 1]; part k is the nodes bounds[k] to bounds[k + 1] - 1
    cumulated: Floats  # [N + 1], 0 and then the cumulated weights by which nodes are drawn


def power_law(rng: np.random.Generator, count: int, cap: float) -> Floats:
    """Draw ``count`` weights with density ∝ w^−2.6, from 1 to ``cap``.

    Square roots alone give this exponent. They are rounded in the same way on every machine; powers are not.
    """
    root = np.sqrt(1.0 - rng.random(count))  # u^(1/2); u is in (0, 1]
    return np.minimum(1.0 / (root * np.sqrt(np.sqrt(root))), cap)  # u^(−5/8): a tail of w^(−8/5)


def cumulate(weights: Floats) -> Floats:
    """Return 0 and the cumulated weights: [N + 1], summed one by one: another order would round differently."""
    cumulated = np.zeros(len(weights) + 1)
    np.cumsum(weights, out=cumulated[1:])
    return cumulated


def draw_edges(rng: np.random.Generator, levels: Sequence[Level], count: int) -> tuple[Ints, Ints]:
    """Draw distinct undirected edges without self-loops.

    Every edge draws a level by share, one end by weight among all nodes, and the other end by weight among the nodes
    in the same part of this level. An edge that exists already is drawn again, level included: so the share of a full
    part goes to wider levels. ``count`` is well below N (N − 1) / 2.

    Returns:
        The lower and the higher end of every edge, in ascending order: [count] each.
    """
    nodes = len(levels[0].cumulated) - 1
    keys = np.empty(0, np.int64)
    while (missing := count - len(keys)) > 0:
        sizes = [min(_CHUNK, missing - done) for done in range(0, missing, _CHUNK)]
        keys = np.concatenate([keys, *(_keys(*_draw(rng, levels, size), nodes) for size in sizes)])
        keys.sort(kind="stable")  # fast on sorted runs
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    return keys // nodes, keys % nodes


def _keys(one: Ints, other: Ints, nodes: int) -> Ints:
    """Return one number per distinct edge, in ascending order, without self-loops."""
    proper = one != other
    one, other = one[proper], other[proper]
    keys: Ints = np.unique(np.minimum(one, other) * nodes + np.maximum(one, other))
    return keys


def _draw(rng: np.random.Generator, levels: Sequence[Level], count: int) -> tuple[Ints, Ints]:
    """Draw both ends of ``count`` edges, level by level."""
    counts = rng.multinomial(count, [level.share for level in levels])
    ends = [_draw_level(rng, level, int(n)) for level, n in zip(levels, counts, strict=True)]
    one, other = (np.concatenate(side) for side in zip(*ends, strict=True))
    return one, other


def _draw_level(rng: np.random.Generator, level: Level, count: int) -> tuple[Ints, Ints]:
    low, high = np.zeros(count, np.int64), np.full(count, len(level.cumulated) - 1)
    one = _pick(rng, level.cumulated, low, high)
    part = np.searchsorted(level.bounds, one, "right") - 1
    return one, _pick(rng, level.cumulated, level.bounds[part], level.bounds[part + 1])


def _pick(rng: np.random.Generator, cumulated: Floats, low: Ints, high: Ints) -> Ints:
    """Draw one node from low to high − 1 for every entry, by weight."""
    start = cumulated[low]
    place = start + rng.random(len(low)) * (cumulated[high] - start)
    return np.clip(np.searchsorted(cumulated, place, "right") - 1, low, high - 1)
