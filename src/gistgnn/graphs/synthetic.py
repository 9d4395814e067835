"""Synthetic graphs in the size of Reddit and Amazon2M.

Every community has a class and a place in a latent space. docs/paper/synthetic-graphs.md says which
properties of the real graphs they have, and which they lack.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.cache import cached
from gistgnn.graphs.graph import Graph, both_ways, draw_split
from gistgnn.graphs.named import DatasetInfo
from gistgnn.utils.console import spinner
from gistgnn.utils.random_streams import generator

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

SEED = 2020  # it belongs to the graph, not to a run: every run sees the same graph
_VERSION = 2  # part of the cache's key: raise it when the same recipe makes another graph
_LARGE = 5_000_000  # edges from which on the user sees that drawing takes a while

# Weights fall with the place r in (0, 1] in a community as r^(-7/11), so their density falls as
# w^(-18/7). The place is then v^(11/4) for a uniform v: squares and square roots, which are rounded
# in the same way on every machine.
_POWER = 11 / 4

# Edges and rows of features that are drawn at once. Changing one changes the graph: they consume
# the streams.
_CHUNK = 4_000_000
_ROWS = 100_000

_CACHED = 1024  # rows of features that stay in the processor's cache


GROUP = 16  # neighbouring communities in a group
INSIDE = 0.75  # share of the edges inside a community
NEARBY = 0.15  # share of the edges inside a group; the other edges join any two nodes
LATENT = 8  # dimensions of the latent space, where every community has a centre
NOISE = 0.2  # standard deviation of every feature's noise


@dataclass(frozen=True)
class Recipe:
    """How to draw a graph; the sizes are of the whole graph.

    A fraction f of it has f^(2/3) as many communities, each with f^(1/3) as many nodes.
    """

    nodes: int
    train: int
    val: int  # the other nodes are test nodes
    communities: int
    # The share of the centres' variance between classes. The rest is inside classes.
    between: float = 0.65
    spread: float = 0.6  # standard deviation of the nodes around their centre; the centres' is 1
    mislabelled: float = 0.05  # share of nodes with a random label


RECIPES = {
    "synthetic:reddit": Recipe(
        232_965,
        train=153_431,
        val=23_831,
        communities=1_024,
        between=0.7,
        spread=0.5,
        mislabelled=0.03,
    ),
    "synthetic:amazon2m": Recipe(
        2_449_029, train=1_670_674, val=39_323, communities=4_096, mislabelled=0.06
    ),
}


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Draw a graph or a fraction of it, or read it from the cache; ``data_root`` is not used."""
    recipe = RECIPES[info.name.split("@")[0]]
    key = f"{_VERSION} {recipe} {info.nodes} {info.edges} {info.features} {info.classes}"

    def build() -> Graph:
        with spinner(f"drawing {info.name}, once", shown=info.edges > _LARGE):
            return draw(info, recipe)

    return cached(info.name, key, build)


def draw(info: DatasetInfo, recipe: Recipe) -> Graph:
    """Draw a graph: ``info`` gives its name and sizes, ``recipe`` everything else."""
    bounds = community_bounds(info, recipe)
    communities = len(bounds) - 1
    part = info.nodes / recipe.nodes
    class_of_community = community_classes(communities, info.classes)
    # The numbers of the nodes, community by community.
    number_of_place = generator(SEED, "synthetic places").permutation(info.nodes)
    community = np.empty(info.nodes, np.int64)
    community[number_of_place] = np.arange(communities).repeat(np.diff(bounds))
    ends = draw_pairs(bounds, info.edges // 2)
    edges = both_ways(*(number_of_place[end] for end in ends))
    del ends  # makes room for the features
    train, val, test = draw_split(info.nodes, round(part * recipe.train), round(part * recipe.val))
    rng = generator(SEED, "synthetic features")
    x = np.empty((info.nodes, info.features), np.float32)
    centres = draw_centres(rng, recipe, class_of_community, info.classes)
    views = draw_views(rng, info.features)
    for start in range(0, len(x), _ROWS):
        rows = slice(start, start + _ROWS)
        draw_features(rng, recipe, centres[community[rows]], views, x[rows])
    y = draw_labels(
        generator(SEED, "synthetic labels"), recipe, class_of_community[community], info.classes
    )
    return Graph.build(
        x, edges, y, train=train, val=val, test=test, num_classes=info.classes, name=info.name
    )


def community_bounds(info: DatasetInfo, recipe: Recipe) -> Ints:
    """Return the bounds of communities with 0.5 to 1.5 times the mean size: [communities + 1]."""
    communities = max(
        info.classes, round(recipe.communities * (info.nodes / recipe.nodes) ** (2 / 3))
    )
    sizes = 0.5 + generator(SEED, "synthetic communities").random(communities)
    cumulated = cumulate(sizes)
    return np.rint(cumulated / cumulated[-1] * info.nodes).astype(np.int64)


def community_classes(communities: int, classes: int) -> Ints:
    """Draw the class of every community: [communities]. Every class has at least one community."""
    rng = generator(SEED, "synthetic classes")
    weights = cumulate(1 / np.sqrt(np.arange(1.0, classes + 1)))  # classes have unequal sizes
    drawn = np.searchsorted(weights, rng.random(communities - classes) * weights[-1], "right") - 1
    return rng.permutation(np.concatenate([np.arange(classes), drawn]))


def draw_labels(rng: np.random.Generator, recipe: Recipe, labels: Ints, classes: int) -> Ints:
    """Give some of the nodes a random class; return ``labels``: [n]."""
    wrong = rng.random(len(labels)) < recipe.mislabelled
    labels[wrong] = rng.integers(classes, size=int(wrong.sum()))
    return labels


def draw_centres(
    rng: np.random.Generator, recipe: Recipe, of_community: Ints, classes: int
) -> Singles:
    """Draw the place of every community in the latent space: [communities, latent]."""
    means = rng.standard_normal((classes, LATENT), np.float32)
    centres = rng.standard_normal((len(of_community), LATENT), np.float32)
    centres *= np.float32((1 - recipe.between) ** 0.5)
    centres += np.float32(recipe.between**0.5) * means[of_community]
    return centres


def draw_views(rng: np.random.Generator, features: int) -> Singles:
    """Draw the map of the latent space to features: [latent, F]."""
    return rng.standard_normal((LATENT, features), np.float32) / np.float32(LATENT**0.5)


def draw_features(
    rng: np.random.Generator, recipe: Recipe, centres: Singles, views: Singles, x: Singles
) -> None:
    """Draw places in the latent space around ``centres``: [n, latent].

    Their features are written to ``x``: [n, F].
    """
    rng.standard_normal(out=x, dtype=np.float32)
    latent = rng.standard_normal((len(x), LATENT), np.float32)
    latent = latent * np.float32(recipe.spread) + centres
    for start in range(0, len(x), _CACHED):
        rows = x[start : start + _CACHED]
        rows *= np.float32(NOISE)
        # A product of matrices would round differently on other machines.
        for place, view in zip(latent[start : start + _CACHED].T, views, strict=True):
            rows += place[:, None] * view


def power_law(rng: np.random.Generator, count: int, cap: float) -> Floats:
    """Draw weights with density ∝ w^−2.6, from 1 to ``cap``.

    They come from square roots, as powers round differently on other machines.
    """
    root = np.sqrt(1.0 - rng.random(count))  # u^(1/2); u is in (0, 1]
    return np.minimum(1.0 / (root * np.sqrt(np.sqrt(root))), cap)  # u^(−5/8): a tail of w^(−8/5)


def weighted_place(uniform: Floats, cap: float) -> Floats:
    """Return places r in [0, 1], drawn by weight r^(-7/11), at most ``cap``: [n].

    They follow from numbers in [0, 1).
    """
    power = 1 - 1 / _POWER  # 7/11
    flat = cap ** (-1 / power)  # places up to here have the largest weight
    root = flat ** (1 - power)
    in_flat = flat * cap
    mass = uniform * (in_flat + (1 - root) * _POWER)
    base = np.maximum(root + (mass - in_flat) / _POWER, 0)
    fourth = np.sqrt(base)
    steep = base * base * fourth * np.sqrt(fourth)
    return np.where(mass < in_flat, mass / cap, np.minimum(steep, 1.0))


def cumulate(weights: Floats) -> Floats:
    """Return 0 and the cumulated weights: [N + 1].

    They are summed one by one, as another order would round differently.
    """
    cumulated = np.zeros(len(weights) + 1)
    np.cumsum(weights, out=cumulated[1:])
    return cumulated


def draw_pairs(communities: Ints, count: int) -> tuple[Ints, Ints]:
    """Draw distinct undirected edges without self-loops, as ``communities`` are bounded.

    Community k is the nodes communities[k] to communities[k + 1] - 1. Returns the lower and the
    higher ends of the edges, ascending: [count].
    """
    # An edge stays within a community, within a group of these, or goes anywhere. It draws which,
    # then one end by weight among all nodes, and the other by weight in the same community or
    # group. An edge that exists is drawn again from the beginning, so the share of a community that
    # is full goes to its group.
    nodes = int(communities[-1])
    groups = np.append(communities[:-1][::GROUP], nodes)
    weights = power_law(generator(SEED, "synthetic weights"), nodes, cap=1000.0)
    cumulated = cumulate(weights)
    # The edges of a hub leave its community, which has too few nodes for them.
    cumulated_inside = cumulate(np.minimum(weights, 8.0))
    rng = generator(SEED, "synthetic edges")

    def draw_within(bounds: Ints, cumulated: Floats, size: int) -> tuple[Ints, Ints]:
        one = _pick(rng, cumulated, np.zeros(size, np.int64), np.full(size, nodes))
        part = np.searchsorted(bounds, one, "right") - 1
        return one, _pick(rng, cumulated, bounds[part], bounds[part + 1])

    def draw(size: int) -> tuple[Ints, Ints]:
        inside, nearby, anywhere = rng.multinomial(size, [INSIDE, NEARBY, 1 - INSIDE - NEARBY])
        pairs = [
            draw_within(communities, cumulated_inside, inside),
            draw_within(groups, cumulated, nearby),
            draw_within(np.array([0, nodes]), cumulated, anywhere),
        ]
        one, other = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
        return one, other

    keys = distinct_edges(draw, count, nodes)
    return keys // nodes, keys % nodes


def distinct_edges(draw: Callable[[int], tuple[Ints, Ints]], count: int, nodes: int) -> Ints:
    """Draw edges until ``count`` are distinct.

    Returns for each the lower end times ``nodes`` plus the higher end, ascending: [count].
    """
    keys = np.empty(0, np.int64)
    while (missing := count - len(keys)) > 0:
        for done in range(0, missing, _CHUNK):
            one, other = draw(min(_CHUNK, missing - done))
            low = np.minimum(one, other)
            high = np.maximum(one, other)
            keys = np.concatenate([keys, (low * nodes + high)[low != high]])
        keys.sort(kind="stable")  # fast on sorted runs
        keys = keys[np.diff(keys, prepend=-1) > 0]
    return keys


def _pick(rng: np.random.Generator, cumulated: Floats, low: Ints, high: Ints) -> Ints:
    """Draw one node from low to high − 1 for every entry, by weight."""
    start = cumulated[low]
    drawn = start + rng.random(len(low)) * (cumulated[high] - start)
    return np.clip(np.searchsorted(cumulated, drawn, "right") - 1, low, high - 1)
