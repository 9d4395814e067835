"""What a graph is converted from, if it need not fit in memory: its nodes in blocks, and a query for its edges.

A source has the method ``node_blocks``, which yields features [n, F], labels [n] or [n, K] and splits [n] (see
`gistgnn.graphs.folder.SPLITS`), and the method ``edges``, which returns SQL for all edges with the columns source and
target. In messages, its nodes are at ``nodes_in`` and its edges at ``edges_in``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.tables import TablesSource
from gistgnn.graphs.duck import is_table
from gistgnn.graphs.folder import MANIFEST
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.named import find, load
from gistgnn.graphs.ogb import OgbFiles, is_ogb
from gistgnn.graphs.synthetic_blocks import Blocks

Array = npt.NDArray[Any]


class BlocksSource:
    """A synthetic graph that is drawn block by block.

    Args:
        info: its name and sizes.
    """

    undirected, nodes_in, edges_in = True, "", ""

    def __init__(self, info: DatasetInfo) -> None:
        self.name, self.classes, self._blocks, self._edges = info.name, info.classes, Blocks(info), info.edges // 2

    def node_blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield all nodes."""
        return map(self._blocks.nodes, range(self._blocks.node_blocks))

    def edges(self, connection: Any, folder: Path) -> str:
        """Draw all edges into a file, and return SQL for one direction of each."""
        ends = np.lib.format.open_memmap(folder / "drawn.npy", "w+", np.int32, (2, self._edges))
        start = 0
        for group in range(self._blocks.groups):
            one, other = self._blocks.edges(group)
            stop = start + len(one)
            ends[0, start:stop], ends[1, start:stop] = one, other
            start = stop
        connection.register("drawn", {"source": ends[0], "target": ends[1]})
        return "SELECT source, target FROM drawn"


Source = BlocksSource | TablesSource | OgbFiles


def find_source(name_or_path: str | Path, nodes: Path | None, data_root: str | Path) -> Source | Graph:
    """Return the source of a name or a path; a graph, if it has to be in memory.

    Args:
        name_or_path: a data set; a `.npz` or `.pt`; a table of edges; or a folder: of OGB's raw files, or a graph
            folder.
        nodes: the table of nodes, if it is a table of edges.
        data_root: see `gistgnn.graphs.load`.

    Raises:
        InputError: there is no such thing, or it cannot be read.
    """
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    info, is_raw = find(name), is_ogb(path)
    is_edges = info is None and (is_table(path) or (path.is_dir() and not is_raw and not (path / MANIFEST).exists()))
    if nodes is not None and not is_edges:
        raise InputError(f"{name}: a table of nodes is given, but this is no table of edges: leave --nodes out")
    if info is not None:
        return BlocksSource(info) if info.reader == "synthetic_blocks" else load(name, data_root)
    if is_edges and nodes is None:
        raise InputError(f"{path}: to convert a table of edges, give the table of nodes as well: --nodes TABLE")
    if nodes is not None:
        return TablesSource(path, nodes.expanduser())
    return OgbFiles(path) if is_raw else load(name_or_path, data_root)
