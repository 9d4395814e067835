"""What the values of a graph folder must be, whatever their checksums say: numbers of nodes, edges and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.on_disk.manifest import Manifest

Array = npt.NDArray[Any]
Problem = tuple[str, str]
"""The name of an array, and what is wrong with it, after "it"."""

PIECE = 2**20
"""Rows that are checked at once."""


def node_problem(manifest: Manifest, first: int, rowptr: Array, y: Array, split: Array) -> Problem | None:
    """Return what is wrong with some consecutive nodes; None: nothing.

    Args:
        manifest: of the folder.
        first: the number of the first one.
        rowptr: [n + 1], where the edges of each begin, and those of the last one end.
        y: [n]; not looked at if nodes have no class.
        split: [n].
    """
    edges = manifest.edges
    ends = (rowptr[0] == 0 or first > 0) and (rowptr[-1] == edges or first + len(split) < manifest.nodes)
    if not ends or rowptr[0] < 0 or rowptr[-1] > edges or (np.diff(rowptr) < 0).any():
        return "rowptr", f"does not rise from 0 to {edges}"
    if split.max() > 3:
        return "split", f"holds {split.max()}, expected 0 to 3"
    if manifest.task == "single-label" and (y.min() < -1 or y.max() >= manifest.classes):
        return "y", f"holds a label outside of -1 to {manifest.classes - 1}"
    if manifest.task == "single-label" and (y[split > 0] < 0).any():
        return "split", "has an unlabelled node in a split"
    return None


def cluster_problem(ptr: Array, node: Array) -> Problem | None:
    """Return what is wrong with clusters; None: nothing.

    Args:
        ptr: [c + 1], the array `cluster_ptr`.
        node: [N], the array `node`.
    """
    nodes = len(node)
    if ptr[0] != 0 or ptr[-1] != nodes or (np.diff(ptr) < 1).any():
        return "cluster_ptr", f"does not rise strictly from 0 to {nodes}"
    found = np.zeros(nodes, bool)
    for start in range(0, nodes, PIECE):
        piece = node[start : start + PIECE + 1]
        if piece.min() < 0 or piece.max() >= nodes:
            return "node", f"holds a node outside of 0 to {nodes - 1}"
        found[piece] = True
        falls = start + 1 + np.flatnonzero(np.diff(piece) < 1)  # only where a cluster begins
        if (ptr[np.searchsorted(ptr, falls)] != falls).any():
            return "node", "is not ascending within a cluster"
    return None if found.all() else ("node", f"lacks node {int(np.argmin(found))}, and has another one twice")
