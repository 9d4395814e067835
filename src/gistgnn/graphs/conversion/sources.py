"""Finds the source that a name or a path means."""

from __future__ import annotations

from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.from_blocks import BlocksSource
from gistgnn.graphs.conversion.from_graph import GraphSource
from gistgnn.graphs.conversion.from_npz import NpzSource, has_edge_data
from gistgnn.graphs.conversion.from_ogb import OgbSource, is_ogb
from gistgnn.graphs.conversion.from_tables import TablesSource
from gistgnn.graphs.conversion.source import Source
from gistgnn.graphs.conversion.tables import is_table
from gistgnn.graphs.named import find, load
from gistgnn.graphs.on_disk import MANIFEST


def find_source(name_or_path: str | Path, nodes: Path | None, data_root: str | Path) -> Source:
    """Return the source of a name or a path.

    Args:
        name_or_path: a data set; a `.npz` or `.pt`; a table of edges; or a folder: of OGB's raw files, or a graph
            folder.
        nodes: the table of nodes, if it is a table of edges.
        data_root: see `gistgnn.graphs.load`.

    Raises:
        InputError: there is no such thing, or it cannot be read.
    """
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    info = find(name)
    is_edges = info is None and (is_table(path) or (path.is_dir() and not _is_graph(path)))
    if nodes is not None and not is_edges:
        raise InputError(f"{name}: a table of nodes is given, but this is no table of edges: leave --nodes out")
    if info is not None:
        return BlocksSource(info) if info.reader == "synthetic_blocks" else GraphSource(load(name, data_root))
    if is_edges:
        if nodes is None:
            raise InputError(f"{path}: to convert a table of edges, give the table of nodes as well: --nodes TABLE")
        return TablesSource(path, nodes.expanduser())
    if path.is_dir() and is_ogb(path):
        return OgbSource(path)
    if path.suffix.lower() == ".npz" and not path.is_dir() and not has_edge_data(path):
        return NpzSource(path)
    return GraphSource(load(name_or_path, data_root))


def _is_graph(folder: Path) -> bool:
    return is_ogb(folder) or (folder / MANIFEST).exists()
