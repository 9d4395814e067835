"""`convert`: writes a graph of any size to a folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.checks import check_edges, check_features, check_labels, check_splits
from gistgnn.graphs.conversion.sorted_edges import sorted_keys
from gistgnn.graphs.conversion.sources import Source, find_source
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.duck import database
from gistgnn.graphs.folder import ArrayEntry, Manifest
from gistgnn.graphs.folder_writing import X_DTYPES, ArrayWriter, stored_features, whole_folder, write_array, write_graph
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.splits import masks_of
from gistgnn.utils.checks import check_number
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import held_bytes
from gistgnn.utils.progress import TaskProgress

_MOST_NODES = 2**31 - 1  # sources are int32
_DEFAULT, _LEAST = 2**31, 2**28  # bytes: of the process, and beside what it takes already


@dataclass(frozen=True)
class Converted:
    """What `convert` has made: the folder's ``manifest``, and the ``seconds`` of each part of the work, by name."""

    manifest: Manifest
    seconds: dict[str, float]


def convert(
    source: str | Path | Graph,
    folder: str | Path,
    *,
    nodes: str | Path | None = None,
    dtype: str = "float32",
    undirected: bool | None = None,
    memory: int | None = None,
    data_root: str | Path = "data",
    progress: bool = False,
) -> Converted:
    """Write a graph to a folder that `gistgnn.graphs.load` reads.

    Nothing is at ``folder`` until all is written. An error, or a kill, leaves nothing that the next call does not
    remove.

    Args:
        source: a name or file as for `gistgnn.graphs.load`; a table of edges in CSV or Parquet, or a folder of such
            tables; a folder of OGB's raw files; or a graph in memory.
        folder: must not exist, or be empty.
        nodes: the table of nodes, for a table of edges.
        dtype: of the features: "float32" or "float16".
        undirected: add the reverse of every edge. None: for OGB's raw files, as in the data sets of these names, and
            for nothing else.
        memory: bytes that the process may take, without the pages of mapped files; None: 2 GiB, or 1 GiB more than it
            takes already. A `.npz`, a `.pt` and named data sets are read whole first, which is not counted.
        data_root: see `gistgnn.graphs.load`.
        progress: show it on standard error.

    Raises:
        InputError: bad input, too little memory, or a folder that cannot be written.
    """
    if dtype not in X_DTYPES:
        raise InputError(f"dtype is {dtype!r:.80}, expected one of {', '.join(X_DTYPES)}")
    target, nodes = Path(folder).expanduser(), None if nodes is None else Path(nodes)
    found = source if isinstance(source, Graph) else find_source(source, nodes, data_root)
    steps = 1 if isinstance(found, Graph) else 2
    room, shown = room_within(memory), TaskProgress(f"converting {found.name}", steps) if progress else None
    with whole_folder(target) as made, shown or contextlib.nullcontext():
        work = _Conversion(made, dtype, room, shown)
        if isinstance(found, Graph):
            work.timed("graph", lambda: write_graph(_both_ways(found) if undirected else found, made, dtype))
        else:
            work.run(found, found.undirected if undirected is None else undirected)
    return Converted(Manifest.read(target), work.seconds)


def room_within(memory: int | None) -> int:
    """Return the bytes that are left of ``memory``; None: of 2 GiB, or of 1 GiB more than the process takes already."""
    held = held_bytes()
    if memory is None:
        return max(_DEFAULT - held, _DEFAULT // 2)
    check_number("memory", memory, above=True)
    if memory < held + _LEAST:
        least = f"expected at least {size(held + _LEAST)}: the process takes {size(held)} already"
        raise InputError(f"memory is {size(memory)}; {least}")
    return memory - held


class _Conversion:
    """Writes a source to a folder that is being made."""

    def __init__(self, folder: Path, dtype: str, room: int, shown: TaskProgress | None) -> None:
        self._folder, self._dtype, self._room, self._shown = folder, dtype, room, shown
        self.seconds: dict[str, float] = {}

    def run(self, source: Source, undirected: bool) -> None:
        with _naming(source.nodes_in):
            arrays, nodes, classes, task = self.timed("nodes", lambda: self._nodes(source))
        with _naming(source.edges_in):
            arrays |= self.timed("edges", lambda: self._edges(source, nodes, undirected))
        sizes = nodes, arrays["col"].shape[0], arrays["x"].shape[1], classes
        Manifest(source.name, task, *sizes, arrays).write(self._folder)

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - start
        if self._shown:
            self._shown.advance()
        return result

    def _nodes(self, source: Source) -> tuple[dict[str, ArrayEntry], int, int, Any]:
        """Check and write x, y and split. Labels and splits of all nodes are in memory."""
        labels, splits, file = [], [], None
        for x, y, split in source.node_blocks():
            features = check_features(x, 0 if file is None else file.rows).numpy()
            file = file or ArrayWriter(self._folder, "x", self._dtype, features.shape[1:])
            if features.shape[1:] != file.columns:
                wrong = f"{features.shape[1]} columns from node {file.rows} on, before {file.columns[0]}"
                raise InputError(f"x has {wrong}")
            file.append(stored_features(features, self._dtype, file.rows))
            labels.append(y)
            splits.append(split)
        if file is None:
            raise InputError("there are no nodes; expected at least one")
        if file.rows > _MOST_NODES:
            raise InputError(f"there are {file.rows:,} nodes; expected at most {_MOST_NODES:,}")
        checked, classes = check_labels(np.concatenate(labels), file.rows, source.classes)
        split = np.concatenate(splits)
        check_splits(masks_of(split), checked)
        arrays = {"x": file.finish(), "y": write_array(self._folder, "y", checked.numpy())}
        arrays["split"] = write_array(self._folder, "split", split)
        return arrays, file.rows, classes, "multi-label" if checked.ndim == 2 else "single-label"

    def _edges(self, source: Source, nodes: int, undirected: bool) -> dict[str, ArrayEntry]:
        """Sort the edges by (target, source), and write them without repeated ones."""
        rowptr = np.zeros(nodes + 1, np.int64)
        col = ArrayWriter(self._folder, "col", np.int32)
        with database(self._folder, self._room // 2) as connection:
            edges = source.edges(connection, self._folder)
            for keys in sorted_keys(connection, edges, nodes, undirected, self._folder, self._room // 2):
                target = keys >> 32
                rowptr[target[0] + 1 : target[-1] + 2] += np.bincount(target - target[0])
                col.append(keys.astype(np.int32))  # its lower half
        if not col.rows:
            raise InputError("there are no edges; expected at least one")
        for path in self._folder.iterdir():  # what the query has needed
            if path.stem not in ("x", "y", "split", "col"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        arrays = {"col": col.finish()}
        return arrays | {"rowptr": write_array(self._folder, "rowptr", np.cumsum(rowptr, out=rowptr))}


def _both_ways(graph: Graph) -> Graph:
    """Return a graph in memory with the reverse of every edge."""
    if graph.edge_data:
        raise InputError(f"{graph.name} has edge data: its edges cannot be made undirected; leave --undirected out")
    both, _ = check_edges(torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1), graph.num_nodes)
    return replace(graph, edges=CSR.of(both, graph.num_nodes))


@contextlib.contextmanager
def _naming(place: str) -> Iterator[None]:
    """Name the source in messages about what is in it."""
    try:
        yield
    except InputError as error:
        if not place or str(error).startswith(place):
            raise
        raise InputError(f"{place}: {error}") from error
