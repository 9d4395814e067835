"""Synthetic graphs that stand for named data sets in a rehearsal: the same sizes, or a share of the nodes and edges."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gistgnn.graphs import Graph, find
from gistgnn.graphs.graph_files import save_file
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.synthetic import RECIPES, Recipe, draw
from gistgnn.utils.random_streams import generator

EDGES = 2_500_000  # more take minutes to draw and to cut into clusters
_NODES_PER_CLASS, _NODES_PER_EDGE = 20, 6  # fewest nodes of a share: for every class, and every edge of a node
_COMMUNITY = 250  # nodes
_WORD_SHARE = 0.5  # features are words if fewer than this share of them are not 0


class StandIns:
    """The stand-ins of a rehearsal, as files in a folder; each is drawn when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, name: str, share: float = 1.0) -> str:
        """Return the file of the stand-in for a data set, or for a share of it; a file that the user gives stays.

        Args:
            name: of the data set.
            share: of its nodes and edges, at least `least_share`.
        """
        info = find(name)
        if info is None:
            return name
        path = self._folder / f"{info.name.replace(':', '-')}-{share:.6g}.npz"
        if not path.exists():
            save_file(stand_in(info, share), path)
        return str(path)


def least_share(info: DatasetInfo) -> float:
    """Return the smallest share of a data set that has communities, and room for as many edges at a node."""
    return min(1.0, max(_NODES_PER_CLASS * info.classes, _NODES_PER_EDGE * info.edges / info.nodes) / info.nodes)


def drawn_share(info: DatasetInfo) -> float:
    """Return the share of a data set that is drawn in seconds: 1, 1/2, 1/4, ..."""
    most = max(EDGES / info.edges, 2 * least_share(info))
    return min(1.0, 2.0 ** math.floor(math.log2(most)))


def shape_of(info: DatasetInfo, share: float) -> DatasetInfo:
    """Return the sizes of a share of a data set: as many features, classes, and edges of a node."""
    nodes, edges = round(share * info.nodes), 2 * round(share * info.edges / 2)
    return replace(info, nodes=nodes, edges=edges, train=max(1, round(nodes / info.nodes * info.train)))


def stand_in(info: DatasetInfo, share: float) -> Graph:
    """Draw a graph with the sizes of a share of a data set. Its edges lie in communities, and labels are predictable.

    If the data set's features are words, as many are 0. If its nodes have several labels, these are random.
    """
    shape = shape_of(info, share)
    graph = draw(shape, RECIPES.get(info.name.split("@")[0]) or _recipe(info))
    rng = generator(0, "stand-in")
    if info.nonzero < _WORD_SHARE:
        words = torch.from_numpy(rng.random(tuple(graph.x.shape), np.float32) < info.nonzero)
        graph = replace(graph, x=graph.x.abs() * words)
    if info.task == "multi-label":
        labels = rng.integers(0, 2, (shape.nodes, info.classes)).astype(np.float32)
        graph = replace(graph, y=torch.from_numpy(labels))
    return graph


def _recipe(info: DatasetInfo) -> Recipe:
    val = max(1, (info.nodes - info.train) // 3)
    return Recipe(info.nodes, train=info.train, val=val, communities=max(info.classes, info.nodes // _COMMUNITY))
