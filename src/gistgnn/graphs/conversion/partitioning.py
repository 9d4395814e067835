"""`partition_folder`: cuts the graph of a folder into clusters, and writes it to a folder in the order of these."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from gistgnn.errors import InputError
from gistgnn.graphs import metis, streaming
from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.graphs.clustering import METHODS, Clusters, cluster, clusters_of_parts
from gistgnn.graphs.conversion.converting import room_within, timed
from gistgnn.graphs.csr import CSR, check_sources, row_chunks
from gistgnn.graphs.folder import ArrayEntry, ArrayWriter, Manifest, load_folder, open_arrays, whole_folder, write_array
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
_ARRAYS = ("x", "y", "split", "col", *EDGE_DATA, "rowptr", "node", "cluster_ptr")  # in the order of the manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partitioned:
    """What `partition_folder` has made: the folder's ``manifest``, and facts.

    ``method`` is "metis", "stream" or "random", ``sizes``: [clusters] the nodes of every cluster, ``edges_inside`` the
    share of the edges with both ends in one cluster, and ``seconds`` has those of each part of the work, by name.
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
    source, target = Path(folder).expanduser(), Path(out).expanduser()
    if method not in FOLDER_METHODS:
        raise InputError(f"method is {method!r:.80}, expected one of {', '.join(FOLDER_METHODS)}")
    check_seed(seed)
    graph, seconds = load_folder(source), dict[str, float]()  # checks the values of nodes
    check_sources(graph.edges.col, graph.num_nodes)
    check_count("clusters", clusters, most=graph.num_nodes)
    if graph.cluster_ptr is not None:
        raise InputError(f"{source} is in clusters already: give the folder from which it was made")
    room, shown = room_within(memory), TaskProgress(f"partitioning {graph.name}", 2) if progress else None
    with whole_folder(target) as made, shown or nullcontext():
        method = _chosen(method, graph.edges, room)
        with timed(seconds, "clusters", shown):
            if method == "stream":  # it is not kept in the cache
                part = streaming.partition(graph.edges, clusters, seed, shown.within if shown else lambda _: None)
                parts = clusters_of_parts(part, clusters)
            else:
                parts = cluster(graph.edges, graph.num_nodes, clusters, method, seed)
        with timed(seconds, "renumbering", shown):
            manifest, inside = _Renumbering(source, parts, room).write(made)
        return Partitioned(manifest, method, parts.sizes.numpy(), inside, seconds)


def _chosen(method: str, edges: CSR, room: int) -> str:
    """Return the method for a graph, and say why; an error if it needs more than ``room`` bytes."""
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
        of = f"{nodes:,} nodes and {count:,} edges"
        less = "" if method == "stream" else ", or --method stream"
        raise InputError(f"{method} needs about {size(needed)} of memory for {of}, and {has}: give more{less}")
    return method


class _Renumbering:
    """Writes the arrays of a folder in the order of clusters, in blocks of new nodes, within ``room`` bytes.

    The rows of a block are read from the mapped arrays in ascending order of the old numbers.
    """

    def __init__(self, source: Path, clusters: Clusters, room: int) -> None:
        self._manifest, arrays = open_arrays(source)
        self._arrays = {name: array.numpy() for name, array in arrays.items()}
        self._edges = CSR(arrays["rowptr"], arrays["col"])
        self._order, self._ptr = clusters.order.numpy(), clusters.ptr.numpy()
        left = room - _RENUMBERED * len(self._order)
        self._block = min(max(left // 4, _LEAST), _MOST)  # bytes in memory at once

    def write(self, folder: Path) -> tuple[Manifest, float]:
        """Write the new folder; return its manifest, and the share of the edges inside clusters."""
        arrays, inside = self._write_edges(folder)
        for name in ("x", "y", "split"):
            array, file = self._arrays[name], self._writer(folder, name)
            rows = max(self._block // array[:1].nbytes, 1)
            for start in range(0, len(array), rows):
                old = self._order[start : start + rows]
                ascending = np.argsort(old)
                block = np.empty((len(old), *array.shape[1:]), array.dtype)
                block[ascending] = array[old[ascending]]
                file.append(block)
            arrays[name] = file.finish()
        arrays["node"] = write_array(folder, "node", self._order)
        arrays["cluster_ptr"] = write_array(folder, "cluster_ptr", self._ptr)
        made = msgspec.structs.replace(
            self._manifest, arrays={name: arrays[name] for name in _ARRAYS if name in arrays}
        )
        made.write(folder)
        return made, inside / made.edges

    def _writer(self, folder: Path, name: str) -> ArrayWriter:
        return ArrayWriter(folder, name, self._arrays[name].dtype, self._arrays[name].shape[1:])

    def _write_edges(self, folder: Path) -> tuple[dict[str, ArrayEntry], int]:
        """Return the arrays of the edges, and how many edges are inside clusters."""
        col, data = self._arrays["col"], [name for name in EDGE_DATA if name in self._arrays]
        files = {name: self._writer(folder, name) for name in ("col", *data)}
        place = np.empty(len(self._order), col.dtype)
        place[self._order] = np.arange(len(place), dtype=place.dtype)
        cluster_of = np.arange(len(self._ptr) - 1, dtype=np.int32).repeat(np.diff(self._ptr))
        rowptr = np.concatenate([[0], np.cumsum(np.diff(self._arrays["rowptr"])[self._order])])
        most, inside = self._block // _ENTRY, 0
        for nodes in row_chunks(torch.from_numpy(rowptr), most, most):
            edges, held = self._edges.rows(torch.from_numpy(self._order[nodes]))
            source, target = place[edges.col.numpy()], edges.targets().numpy() + nodes.start
            inside += int((cluster_of[source] == cluster_of[target]).sum())
            order = np.lexsort((source, target))  # equal edges keep their order, as their data may differ
            files["col"].append(source[order])
            for name in data:
                files[name].append(self._arrays[name][np.asarray(held)[order]])
        entries = {name: file.finish() for name, file in files.items()}
        return entries | {"rowptr": write_array(folder, "rowptr", rowptr)}, inside
