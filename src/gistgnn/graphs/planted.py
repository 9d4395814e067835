"""Edges of a random graph with planted communities and power-law degrees, drawn by the chunk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Part of what the graph is: the streams are consumed chunk by chunk.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Level:
    """One level of a hierarchy of communities, and the edges that stay within it.

    Attributes:
        share: of the edges that are drawn.
        bounds: [parts + 1] int64; part k is the nodes ``bounds[k]`` to ``bounds[k + 1] - 1``.
        cumulated: [N + 1] float64, 0 and then the cumulated weights of the nodes: what they are drawn by.
    """

    share: float
    bounds: Ints
    cumulated: Floats


def power_law(rng: np.random.Generator, count: int, cap: float) -> Floats:
    """Weights of density ∝ w^−2.6 from 1 to ``cap``: [count].

    The exponent is one that square roots alone can make, which are rounded alike on every machine; powers are not.
    """
    root = np.sqrt(1.0 - rng.random(count))  # u^(1/2); u is in (0, 1]
    return np.minimum(1.0 / (root * np.sqrt(np.sqrt(root))), cap)  # u^(−5/8): a tail of w^(−8/5)


def cumulate(weights: Floats) -> Floats:
    """0 and the cumulated weights: [N + 1]. Cumulated one by one, as sums in another order round otherwise."""
    cumulated = np.zeros(len(weights) + 1)
    np.cumsum(weights, out=cumulated[1:])
    return cumulated


def draw_edges(rng: np.random.Generator, levels: Sequence[Level], count: int) -> tuple[Ints, Ints]:
    """Draw distinct undirected edges without self-loops.

    An edge picks a level by its share, one end by weight among all nodes, and the other by weight among the nodes of
    the first one's part. What came up before is drawn again, level included: where a part is full, its share goes to
    the wider levels.

    Args:
        rng: the stream.
        levels: any number; they share the nodes 0..N-1.
        count: how many, well below N (N − 1) / 2.

    Returns:
        Both ends of every edge, the lower first, in ascending order: [count] each.
    """
    nodes = len(levels[0].cumulated) - 1
    keys = np.empty(0, np.int64)
    while (missing := count - len(keys)) > 0:
        sizes = [min(_CHUNK, missing - done) for done in range(0, missing, _CHUNK)]
        keys = np.concatenate([keys, *(_keys(*_draw(rng, levels, size), nodes) for size in sizes)])
        keys.sort(kind="stable")  # merges what is sorted in runs
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    return keys // nodes, keys % nodes


def _keys(one: Ints, other: Ints, nodes: int) -> Ints:
    """One number for each edge that is not a self-loop, in ascending order."""
    apart = one != other
    one, other = one[apart], other[apart]
    keys: Ints = np.unique(np.minimum(one, other) * nodes + np.maximum(one, other))
    return keys


def _draw(rng: np.random.Generator, levels: Sequence[Level], count: int) -> tuple[Ints, Ints]:
    """Both ends of ``count`` edges, level by level."""
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
    """One node of low to high − 1 for each entry, by weight."""
    start = cumulated[low]
    place = start + rng.random(len(low)) * (cumulated[high] - start)
    return np.clip(np.searchsorted(cumulated, place, "right") - 1, low, high - 1)
