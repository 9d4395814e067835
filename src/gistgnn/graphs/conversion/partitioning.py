"""`partition_folder`: cuts the graph of a folder into clusters, and writes it to a folder in the order of these."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs import metis, streaming
from gistgnn.graphs.clustering import METHODS, cluster
from gistgnn.graphs.conversion.memory import room_within
from gistgnn.graphs.csr import CSR, check_sources
from gistgnn.graphs.edge_data import EDGE_DATA
from gistgnn.graphs.folder import ArrayEntry, Manifest, load_folder, open_arrays
from gistgnn.graphs.folder_writing import ArrayWriter, whole_folder, write_array
from gistgnn.graphs.streaming.rows import row_blocks
from gistgnn.utils.checks import check_count
from gistgnn.utils.formats import size
from gistgnn.utils.progress import TaskProgress
from gistgnn.utils.random_streams import check_seed

Ints = npt.NDArray[np.int64]

FOLDER_METHODS = ("auto", *METHODS)

_NODE, _EDGE = 24, 12  # bytes of this process beside METIS's: the edges, and their copy without loops
_RENUMBERED = 24  # bytes of a node while nodes get new numbers
_ENTRY = 64  # bytes of an edge of a block, with copies
_LEAST, _MOST = 2**22, 2**28  # bytes of a block
_EDGES = 2**21  # edges that are counted at once

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partitioned:
    """What `partition_folder` has made.

    Attributes:
        manifest: of the folder.
        method: "metis", "stream" or "random".
        sizes: [clusters] nodes of every cluster.
        edges_inside: the share of the edges with both ends in one cluster.
        seconds: of each part of the work, by name.
    """

    manifest: Manifest
    method: str
    sizes: Ints
    edges_inside: float
    seconds: dict[str, float]


def partition_folder(
    folder: str | Path,
    out: str | Path,
    clusters: int,
    *,
    method: str = "auto",
    memory: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Partitioned:
    """Cut the graph of a folder into clusters, and write it to another folder, cluster by cluster.

    Nothing is at ``out`` until all is written. An error, or a kill, leaves nothing that the next call does not remove.

    Args:
        folder: of a graph, without clusters.
        out: must not exist, or be empty.
        clusters: c, from 1 to N. Empty clusters are dropped, so there may be fewer.
        method: "metis"; "stream", which reads the edges in blocks; "random"; or "auto": METIS where its memory fits,
            otherwise stream.
        memory: bytes that the process, and METIS's, may take, without the pages of mapped files; None: 2 GiB, or 1 GiB
            more than it takes already.
        seed: the same seed gives the same clusters.
        progress: show it on standard error.

    Raises:
        InputError: bad input, too little memory, or a folder that cannot be written.
    """
    if method not in FOLDER_METHODS:
        raise InputError(f"method is {method!r:.80}, expected one of {', '.join(FOLDER_METHODS)}")
    check_seed(seed)
    source, target = Path(folder).expanduser(), Path(out).expanduser()
    graph = load_folder(source)  # checks the values of nodes
    check_sources(graph.edges.col, graph.num_nodes)
    check_count("clusters", clusters, most=graph.num_nodes)
    if graph.cluster_ptr is not None:
        raise InputError(f"{source} is in clusters already: give the folder from which it was made")
    room, label = room_within(memory), f"partitioning {graph.name}"
    with whole_folder(target) as made, TaskProgress(label, 2) if progress else nullcontext() as shown:
        method, start = _chosen(method, graph.edges, room), time.perf_counter()
        part = _clusters_of(graph.edges, clusters, method, seed, shown)
        found, inside = time.perf_counter(), _inside(graph.edges, part)
        sizes = np.bincount(part)
        sizes = sizes[sizes > 0]
        order, ptr = np.argsort(part, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])
        manifest, arrays = open_arrays(source)
        block = min(max((room - _RENUMBERED * len(order)) // 4, _LEAST), _MOST)
        manifest = _Renumbering(arrays, order, block).write(made, manifest, ptr)
        if shown:
            shown.advance()
        seconds = {"clusters": found - start, "renumbering": time.perf_counter() - found}
        return Partitioned(manifest, method, sizes, inside, seconds)


def _chosen(method: str, edges: CSR, room: int) -> str:
    """Return the method for a graph, and say why.

    Raises:
        InputError: the method needs more than ``room`` bytes.
    """
    nodes, count = edges.num_nodes, edges.num_edges
    needs = {
        "metis": metis.metis_bytes(nodes, count) + _NODE * nodes + _EDGE * count,
        "stream": streaming.stream_bytes(nodes, count),
    }
    has = f"{size(room)} are left of --memory"
    if method == "auto":
        method = "metis" if needs["metis"] <= room else "stream"
        fits = "fits" if method == "metis" else "does not fit"
        log.info(f"METIS needs about {size(needs['metis'])} for {count:,} edges, which {fits}, as {has}: {method}")
    if (needed := needs.get(method, 0)) > room:
        less = "" if method == "stream" else ", or --method stream"
        raise InputError(
            f"{method} needs about {size(needed)} of memory for {nodes:,} nodes and {count:,} edges, and {has}: give "
            f"more{less}"
        )
    return method


def _clusters_of(edges: CSR, clusters: int, method: str, seed: int, shown: TaskProgress | None) -> npt.NDArray[Any]:
    """Return the cluster of every node: [N]."""
    if method == "stream":
        part: npt.NDArray[Any] = streaming.partition(edges, clusters, seed, shown.within if shown else lambda _: None)
    else:
        part = cluster(edges, edges.num_nodes, clusters, method, seed).assignment.numpy()
    if shown:
        shown.advance()
    return part


def _inside(edges: CSR, part: npt.NDArray[Any]) -> float:
    """Return the share of the edges with both ends in one cluster."""
    same = 0
    for rows in row_blocks(edges, _EDGES, _EDGES, edges.num_edges):
        same += int((part[rows.source] == part[rows.nodes].repeat(np.diff(rows.rowptr))).sum())
    return same / edges.num_edges


class _Renumbering:
    """Writes the arrays of a folder in another order of the nodes, in blocks of new nodes.

    The rows of a block are read from the mapped arrays in ascending order of the old numbers.

    Args:
        arrays: of the folder, mapped.
        order: [N] the old number of every new node.
        block: bytes of rows that are in memory at once.
    """

    def __init__(self, arrays: dict[str, Tensor], order: Ints, block: int) -> None:
        self._arrays = {name: array.numpy() for name, array in arrays.items()}
        self._order, self._block = order, block
        self._place = np.empty(len(order), self._arrays["col"].dtype)
        self._place[order] = np.arange(len(order), dtype=self._place.dtype)

    def write(self, folder: Path, manifest: Manifest, ptr: Ints) -> Manifest:
        """Write the new folder; ``ptr``: [c + 1] bounds of the clusters. Return its manifest."""
        arrays = {name: self._nodes(folder, name) for name in ("x", "y", "split")} | self._edges(folder)
        arrays |= {
            "node": write_array(folder, "node", self._order),
            "cluster_ptr": write_array(folder, "cluster_ptr", ptr),
        }
        made = msgspec.structs.replace(manifest, arrays=arrays)
        made.write(folder)
        return made

    def _nodes(self, folder: Path, name: str) -> ArrayEntry:
        array = self._arrays[name]
        file = ArrayWriter(folder, name, array.dtype, array.shape[1:])
        rows = max(self._block // array[:1].nbytes, 1)
        for start in range(0, len(array), rows):
            old = self._order[start : start + rows]
            ascending = np.argsort(old)
            block = np.empty((len(old), *array.shape[1:]), array.dtype)
            block[ascending] = array[old[ascending]]
            file.append(block)
        return file.finish()

    def _edges(self, folder: Path) -> dict[str, ArrayEntry]:
        data = {name: self._arrays[name] for name in EDGE_DATA if name in self._arrays}
        written = {"col": self._arrays["col"], **data}
        files = {name: ArrayWriter(folder, name, array.dtype, array.shape[1:]) for name, array in written.items()}
        degree = np.diff(self._arrays["rowptr"])[self._order]
        rowptr = np.concatenate([[0], np.cumsum(degree)])
        for nodes in self._edge_blocks(rowptr):
            entries = self._entries(nodes, degree[nodes])
            source = self._place[self._arrays["col"][entries]]
            target = np.arange(nodes.start, nodes.stop).repeat(degree[nodes])
            order = np.lexsort((source, target))  # equal edges keep their order, as their data may differ
            files["col"].append(source[order])
            for name, array in data.items():
                files[name].append(array[entries[order]])
        entries_of = {name: file.finish() for name, file in files.items()}
        return entries_of | {"rowptr": write_array(folder, "rowptr", rowptr)}

    def _edge_blocks(self, rowptr: Ints) -> Iterator[slice]:
        """Yield ranges of new nodes with about as many edges as a block holds."""
        start, most = 0, self._block // _ENTRY
        while start < len(self._order):
            fits = int(np.searchsorted(rowptr, rowptr[start] + most, "right")) - 1
            stop = min(max(fits, start + 1), start + most)
            yield slice(start, stop)
            start = stop

    def _entries(self, nodes: slice, degree: Ints) -> Ints:
        """Return the places of the edges into some new nodes in the old arrays."""
        begin = np.cumsum(degree) - degree
        return np.arange(int(degree.sum())) + (self._arrays["rowptr"][self._order[nodes]] - begin).repeat(degree)
