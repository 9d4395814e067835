"""`convert`: writes a graph of any size to a folder.

A source of a graph that need not fit in memory has ``node_blocks()``, which yields features [n, F],
labels [n] or [n, K] and splits [n] (numbers of `gistgnn.graphs.graph.SPLITS`), and
``edges(connection, folder)``, which returns SQL for all edges with the columns source and target.
Messages name where they are: ``nodes_in``, ``edges_in``.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import torch

from gistgnn.errors import InputError, printable
from gistgnn.graphs import folder as folders
from gistgnn.graphs.checks import (
    check_edges,
    check_features,
    check_labels,
    check_splits,
    naming,
    to_tensor,
)
from gistgnn.graphs.columns import Rounding, counting_columns, note_columns
from gistgnn.graphs.conversion.tables_source import TablesSource
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.folder import ArrayEntry, ArrayWriter, Manifest
from gistgnn.graphs.graph import Graph, masks_of
from gistgnn.graphs.named import find, load
from gistgnn.graphs.ogb import OgbFiles, is_ogb
from gistgnn.graphs.synthetic_blocks import Blocks
from gistgnn.graphs.tables import database, is_table, sorted_keys
from gistgnn.storage.tensors import map_array
from gistgnn.utils.checks import LONGEST_NAME, check_number
from gistgnn.utils.console import spinner
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes, held_bytes, limit_in_force

_MOST_NODES = 2**31 - 1  # sources are int32
_DEFAULT = 2**31  # bytes that the process may take
_LEAST = 2**28  # bytes that it needs beside what it takes already


def convert(
    source: str | Path | Graph,
    folder: str | Path,
    *,
    nodes: str | Path | None = None,
    undirected: bool | None = None,
    memory: int | None = None,
    data_root: str | Path = "data",
    progress: bool = False,
) -> Manifest:
    """Write a graph to a folder that `gistgnn.graphs.load` reads, and return its manifest.

    Nothing is at ``folder`` until all is written. An error, or a kill, leaves nothing that the next
    call does not remove.

    Args:
        source: a name or file as for `gistgnn.graphs.load`; a table of edges in CSV or Parquet, or
            a folder of such tables; a folder of OGB's raw files; or a graph in memory.
        folder: must not exist, or be empty.
        nodes: the table of nodes, for a table of edges.
        undirected: add the reverse of every edge. By default this is done for OGB's raw files, as
            in the data sets of these names, and for nothing else.
        memory: bytes that the process may take, without the pages of mapped files. Defaults to 2
            GiB, or to 1 GiB more than it takes already. A `.npz`, a `.pt` and named data sets are
            read whole first, which is not counted.
        data_root: see `gistgnn.graphs.load`.
        progress: show it on standard error.
    """
    target = Path(folder).expanduser()
    nodes = None if nodes is None else Path(nodes)
    graph_or_source = (
        source if isinstance(source, Graph) else _find_source(source, nodes, data_root)
    )
    room = room_within(memory)
    with folders.whole_folder(target) as made:
        if isinstance(graph_or_source, Graph):
            folders.write_graph(
                _both_ways(graph_or_source) if undirected else graph_or_source, made
            )
        else:
            both_ways = graph_or_source.undirected if undirected is None else undirected
            name = (
                printable(target.resolve().name)[:LONGEST_NAME]
                if isinstance(graph_or_source, TablesSource)
                else graph_or_source.name
            )
            _write_source(graph_or_source, name, made, both_ways, room // 2, progress)
    return Manifest.read(target)


def room_within(memory: int | None) -> int:
    """Return the bytes that are left of ``memory`` for this process.

    ``memory`` defaults to 2 GiB, or to 1 GiB more than the process takes already. No more is
    returned than a container or a batch system leaves.
    """
    process = held_bytes()
    most = max(available_bytes(torch.device("cpu")), _LEAST) if limit_in_force() else 2**63
    if memory is None:
        return min(max(_DEFAULT - process, _DEFAULT // 2), most)
    memory = int(check_number("memory", memory, above=True))
    if memory < process + _LEAST:
        raise InputError(
            f"memory is {size(memory)}; expected at least {size(process + _LEAST)}: the process "
            f"takes {size(process)} already"
        )
    return min(memory - process, most)


def _write_source(
    source: "Source", name: str, folder: Path, undirected: bool, memory: int, progress: bool
) -> None:
    with spinner("writing the nodes", shown=progress), naming(source.nodes_in):
        arrays, classes, has_several_labels = _write_nodes(source, folder)
        if isinstance(source, TablesSource) and source.has_ids:
            arrays["id"] = source.write_ids(folder, memory)
    nodes, features = arrays["x"].shape
    with spinner("sorting the edges", shown=progress), naming(source.edges_in):
        arrays |= _write_edges(source, nodes, undirected, folder, memory)
    manifest = Manifest(
        name=name,
        task="multi-label" if has_several_labels else "single-label",
        nodes=nodes,
        edges=arrays["col"].shape[0],
        features=features,
        classes=classes,
        arrays=arrays,
        class_names=source.class_names or msgspec.UNSET,
    )
    manifest.write(folder)


def _write_nodes(source: "Source", folder: Path) -> tuple[dict[str, ArrayEntry], int, bool]:
    """Check and write x, y and split.

    Also returns the number of classes, and whether nodes have several labels.
    """
    labels = []
    splits = []
    file = None
    rounding = Rounding()
    for x, y, split in source.node_blocks():
        values = to_tensor(x, "x")
        features = check_features(values, 0 if file is None else file.rows).numpy()
        rounding.add(values)
        file = file or ArrayWriter(folder, "x", np.float32, features.shape[1:])
        if features.shape[1:] != file.columns:
            raise InputError(
                f"x has {features.shape[1]} columns from node {file.rows} on, before "
                f"{file.columns[0]}"
            )
        file.append(features)
        labels.append(y)
        splits.append(split)
    if file is None:
        raise InputError("there are no nodes; expected at least one")
    if file.rows > _MOST_NODES:
        raise InputError(f"there are {file.rows:,} nodes; expected at most {_MOST_NODES:,}")
    checked, classes = check_labels(np.concatenate(labels), file.rows, source.classes)
    split = np.concatenate(splits)
    check_splits(masks_of(split), checked)
    arrays = {
        "x": file.finish(),
        "y": folders.write_array(folder, "y", checked.numpy()),
        "split": folders.write_array(folder, "split", split),
    }
    names: Sequence[str] = source.feature_names if isinstance(source, TablesSource) else ()
    note_columns(rounding.losses(), counting_columns(map_array(folder / "x.npy")), names)
    return arrays, classes, checked.ndim == 2


def _write_edges(
    source: "Source", nodes: int, undirected: bool, folder: Path, memory: int
) -> dict[str, ArrayEntry]:
    """Sort the edges by (target, source), and write them without repeated ones.

    DuckDB and NumPy take `memory` each.
    """
    rowptr = np.zeros(nodes + 1, np.int64)
    col = ArrayWriter(folder, "col", np.int32)
    with database(folder, memory) as connection:
        edges = source.edges(connection, folder)
        for keys in sorted_keys(connection, edges, nodes, undirected, folder, memory):
            target = keys >> 32
            rowptr[target[0] + 1 : target[-1] + 2] += np.bincount(target - target[0])
            col.append(keys.astype(np.int32))  # its lower half
    if not col.rows:
        raise InputError("there are no edges; expected at least one")
    for path in folder.iterdir():  # remove the files that the query has needed
        if path.stem not in ("x", "y", "split", "col", "id"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return {
        "col": col.finish(),
        "rowptr": folders.write_array(folder, "rowptr", np.cumsum(rowptr, out=rowptr)),
    }


def _both_ways(graph: Graph) -> Graph:
    if graph.edge_data:
        raise InputError(
            f"{graph.name} has edge data: its edges cannot be made undirected; leave --undirected "
            "out"
        )
    edges, _ = check_edges(
        torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1), graph.num_nodes
    )
    return replace(graph, edges=CSR.of(edges, graph.num_nodes))


Source = Blocks | TablesSource | OgbFiles


def _find_source(
    name_or_path: str | Path, nodes: Path | None, data_root: str | Path
) -> Source | Graph:
    """Return the source of a name or a path; a graph, if it has to be in memory."""
    name = str(name_or_path)
    path = Path(name_or_path).expanduser()
    info = find(name)
    is_raw = is_ogb(path)
    is_tables = path.is_dir() and not is_raw and not (path / folders.MANIFEST).exists()
    is_edges = info is None and (is_table(path) or is_tables)
    if nodes is not None and not is_edges:
        raise InputError(
            f"{name}: a table of nodes is given, but this is no table of edges: leave --nodes out"
        )
    if info is not None:
        return Blocks(info) if info.reader == "synthetic_blocks" else load(name, data_root)
    if is_edges and nodes is None:
        raise InputError(
            f"{path}: to convert a table of edges, give the table of nodes as well: --nodes TABLE"
        )
    if nodes is not None:
        return TablesSource(path, nodes.expanduser())
    return OgbFiles(path) if is_raw else load(name_or_path, data_root)
