"""A synthetic graph in the size of ogbn-papers100M, drawn block by block.

It need not fit in memory. The recipe is that of `gistgnn.graphs.synthetic`, with these differences:
a node's weight follows from its place in its community, and its number from its place, so that
there is no table of all nodes; each group of communities draws its own edges; few nodes have a
label. docs/paper/synthetic-graphs.md describes it.
"""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.graphs import synthetic
from gistgnn.graphs.cache import cached
from gistgnn.graphs.checks import check_room
from gistgnn.graphs.graph import Graph, undirected_graph
from gistgnn.graphs.named import DatasetInfo
from gistgnn.graphs.synthetic import GROUP, INSIDE, NEARBY, SEED, Ints, Recipe, Singles
from gistgnn.utils.console import spinner
from gistgnn.utils.random_streams import generator

VERSION = 1  # raise it when the same recipe makes another graph
ROWS = 2**16  # nodes that share a random stream for their features, labels and splits
_CAPS = {"inside": 8.0, "wide": 1000.0}
# The share of all pairs in a part that may be edges. Further edges go to the wider level.
_FULL = 0.4

RECIPE = Recipe(111_059_956, train=1_207_179, val=125_265, communities=131_072, mislabelled=0.06)
TEST = 214_338  # test nodes of the whole graph; other nodes have no label


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Draw a graph in memory, or read it from the cache; ``data_root`` is not used."""
    check_room(
        12 * info.nodes * info.features + 64 * info.edges,
        f"{info.name} in memory (convert it to a folder)",
    )
    blocks = Blocks(info)

    def build() -> Graph:
        with spinner("drawing", shown=True):
            x, y, split = (np.concatenate(part) for part in zip(*blocks.node_blocks(), strict=True))
            one, other = (np.concatenate(side) for side in zip(*blocks.all_edges(), strict=True))
            return undirected_graph(
                x, one, other, y, split, num_classes=info.classes, name=info.name
            )

    return cached(info.name, blocks.key, build)


class Blocks:
    """The parts of a graph, each drawn alone: a source of `gistgnn.graphs.conversion`."""

    undirected = True
    class_names = ()
    nodes_in = ""
    edges_in = ""

    def __init__(self, info: DatasetInfo, recipe: Recipe = RECIPE) -> None:
        self.info = info
        self.recipe = recipe
        self.name = info.name
        self.classes = info.classes
        # The key has all that decides the graph.
        sizes = f"{info.nodes} {info.edges} {info.features} {info.classes}"
        self.key = f"blocks {VERSION} {recipe} {TEST} {sizes}"
        # The bounds of the communities, by place: [communities + 1].
        self.bounds = synthetic.community_bounds(info, recipe)
        self.groups = -(-(len(self.bounds) - 1) // GROUP)  # of communities
        self._group_bounds = np.append(self.bounds[:-1][::GROUP], self.bounds[-1])
        # Edges from other groups choose a community by these cumulated weights, twice around.
        sizes_of = np.diff(self.bounds)
        popularity = synthetic.power_law(
            generator(SEED, "block popularity"), len(sizes_of), cap=1000.0
        )
        self._popular = synthetic.cumulate(np.tile(sizes_of * popularity, 2))
        self._classes = synthetic.community_classes(len(sizes_of), info.classes)
        self._centres = synthetic.draw_centres(
            generator(SEED, "block centres"), recipe, self._classes, info.classes
        )
        self._views = synthetic.draw_views(generator(SEED, "block views"), info.features)
        # A number without a common divisor with N, near its golden section: neighbours by place are
        # far by number.
        self._stride = round(info.nodes * 0.6180339887)
        while math.gcd(self._stride, info.nodes) > 1:
            self._stride += 1

    def node_blocks(self) -> Iterator[tuple[Singles, Ints, npt.NDArray[np.uint8]]]:
        return map(self.nodes, range(-(-self.info.nodes // ROWS)))

    def all_edges(self) -> Iterator[tuple[Ints, Ints]]:
        """Draw all edges, each in one direction, group by group."""
        return map(self.group_edges, range(self.groups))

    def edges(self, connection: Any, folder: Path) -> str:
        """Draw all edges into a file, and return SQL for one direction of each."""
        ends = np.lib.format.open_memmap(
            folder / "drawn.npy", "w+", np.int32, (2, self.info.edges // 2)
        )
        start = 0
        for one, other in self.all_edges():
            stop = start + len(one)
            ends[0, start:stop] = one
            ends[1, start:stop] = other
            start = stop
        connection.register("drawn", {"source": ends[0], "target": ends[1]})
        return "SELECT source, target FROM drawn"

    def group_edges(self, group: int) -> tuple[Ints, Ints]:
        """Draw the edges that a group owns.

        Of two groups, the one at most half of all groups behind the other owns an edge between
        them.
        """
        rng = generator(SEED, "block edges", group)
        nodes = self.info.nodes
        inside, nearby, anywhere = self._counts(group)
        draws = (
            (self._within_community, inside),
            (self._within_group, nearby),
            (self._to_other_groups, anywhere),
        )
        keys_of_draws = (
            synthetic.distinct_edges(partial(draw, rng, group), count, nodes)
            for draw, count in draws
        )
        keys = np.concatenate(list(keys_of_draws))
        return self._number(keys // nodes), self._number(keys % nodes)

    def nodes(self, block: int) -> tuple[Singles, Ints, npt.NDArray[np.uint8]]:
        """Draw the features [n, F], labels [n] and splits [n] of a block of nodes."""
        info = self.info
        recipe = self.recipe
        numbers = np.arange(block * ROWS, min((block + 1) * ROWS, info.nodes))
        community = np.searchsorted(self.bounds, self._place(numbers), "right") - 1
        rng = generator(SEED, "block nodes", block)
        split = self._splits(rng, numbers)
        labels = synthetic.draw_labels(rng, recipe, self._classes[community], info.classes)
        x = np.empty((len(numbers), info.features), np.float32)
        synthetic.draw_features(rng, recipe, self._centres[community], self._views, x)
        return x, np.where(split > 0, labels, -1), split

    def _counts(self, group: int) -> tuple[int, int, int]:
        """Return how many edges a group owns.

        They are inside communities, between its communities, and to other groups.
        """
        info = self.info
        begin, end = self._group_bounds[group : group + 2].tolist()
        half = info.edges // 2
        first = group * GROUP
        # The totals of all groups sum to half of the edges, as an edge has two directions.
        total = half * end // info.nodes - half * begin // info.nodes
        sizes = np.diff(self.bounds[first : first + GROUP + 1])  # of its communities
        nodes = int(sizes.sum())
        pairs = int((sizes * (sizes - 1) // 2).sum())
        inside = min(round(INSIDE * total), int(_FULL * pairs))
        nearby = int(_FULL * (nodes * (nodes - 1) // 2 - pairs))
        inside_group = min(round((INSIDE + NEARBY) * total), inside + nearby)
        return inside, inside_group - inside, total - inside_group

    def _within_community(
        self, rng: np.random.Generator, group: int, count: int
    ) -> tuple[Ints, Ints]:
        community = self._drawn(rng, group, count)
        return self._pick(rng, community, "inside"), self._pick(rng, community, "inside")

    def _within_group(self, rng: np.random.Generator, group: int, count: int) -> tuple[Ints, Ints]:
        one, other = (self._drawn(rng, group, count) for _ in range(2))
        differ = one != other
        return self._pick(rng, one[differ], "wide"), self._pick(rng, other[differ], "wide")

    def _to_other_groups(
        self, rng: np.random.Generator, group: int, count: int
    ) -> tuple[Ints, Ints]:
        one = self._drawn(rng, group, count)
        ahead = (self.groups - 1) // 2
        first = self._popular[self._first(group + 1)]
        last = self._popular[self._first(group + ahead + 1)]
        other = (
            np.searchsorted(self._popular, first + rng.random(count) * (last - first), "right") - 1
        )
        return self._pick(rng, one, "wide"), self._pick(rng, other % (len(self.bounds) - 1), "wide")

    def _first(self, group: int) -> int:
        """Return the first community of a group; group 0 comes again after the last one."""
        communities = len(self.bounds) - 1
        around, group = divmod(group, self.groups)
        return around * communities + group * GROUP

    def _drawn(self, rng: np.random.Generator, group: int, count: int) -> Ints:
        """Draw communities of a group by size."""
        start, end = self._group_bounds[group : group + 2]
        places = start + (rng.random(count) * (end - start)).astype(np.int64)
        return np.searchsorted(self.bounds, places, "right") - 1

    def _pick(self, rng: np.random.Generator, community: Ints, level: str) -> Ints:
        """Draw a node of each community by weight; return its place."""
        start = self.bounds[community]
        size = self.bounds[community + 1] - start
        offset = (synthetic.weighted_place(rng.random(len(community)), _CAPS[level]) * size).astype(
            np.int64
        )
        return start + np.minimum(offset, size - 1)

    def _splits(self, rng: np.random.Generator, numbers: Ints) -> npt.NDArray[np.uint8]:
        """Draw which nodes of a block are in which split.

        Over all blocks the counts are those of the graph.
        """
        nodes = self.info.nodes
        begin = int(numbers[0])
        end = int(numbers[-1]) + 1
        order = rng.permutation(len(numbers))
        assigned = 0
        split = np.zeros(len(numbers), np.uint8)
        part = nodes / self.recipe.nodes
        for number, total in enumerate(
            (self.info.train, round(part * self.recipe.val), round(part * TEST)), 1
        ):
            count = total * end // nodes - total * begin // nodes
            split[order[assigned : assigned + count]] = number
            assigned += count
        return split

    def _number(self, place: Ints) -> Ints:
        return place * self._stride % self.info.nodes

    def _place(self, number: Ints) -> Ints:
        return number * pow(self._stride, -1, self.info.nodes) % self.info.nodes
