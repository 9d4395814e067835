"""`partition_folder`: cuts the graph of a folder into clusters, and writes it in their order."""

import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from gistgnn.errors import InputError
from gistgnn.graphs import metis, streaming
from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.graphs.clustering import (
    Clusters,
    choose_clusters,
    cluster,
    clusters_of_parts,
    entropy_share,
)
from gistgnn.graphs.conversion.converting import room_within
from gistgnn.graphs.csr import CSR, check_sources, row_chunks
from gistgnn.graphs.folder import (
    ArrayEntry,
    ArrayWriter,
    Manifest,
    load_folder,
    open_arrays,
    whole_folder,
    write_array,
)
from gistgnn.graphs.graph import Graph
from gistgnn.utils.checks import check_choice, check_count
from gistgnn.utils.console import spinner
from gistgnn.utils.formats import size
from gistgnn.utils.random_streams import check_seed
from gistgnn.utils.tensors import Array

Ints = npt.NDArray[np.int64]

FOLDER_METHODS = ("auto", "metis", "stream", "random")

# Bytes of a node and an edge in this process, beside METIS's: edges, and copies without loops.
_NODE = 24
_EDGE = 17
_RENUMBERED = 24  # bytes of a node while nodes get new numbers
_ENTRY = 64  # bytes of an edge of a block, with copies
_LEAST = 2**22  # bytes of a block
_MOST = 2**28
# The arrays in the order of the manifest.
_ARRAYS = ("x", "y", "split", "col", *EDGE_DATA, "rowptr", "node", "cluster_ptr", "id")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partitioned:
    """What `partition_folder` has made.

    Attributes:
        manifest: of the folder.
        method: by which the graph was cut.
        sizes: [clusters], the nodes of each cluster.
        edges_inside: the share of the edges with both ends in one cluster.
    """

    manifest: Manifest
    method: str
    sizes: Ints
    edges_inside: float


def partition_folder(
    folder: str | Path,
    out: str | Path,
    clusters: int | None = None,
    *,
    method: str = "auto",
    memory: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Partitioned:
    """Cut the graph of a folder into clusters, and write it to another folder, cluster by cluster.

    Nothing is at ``out`` until all is written. An error, or a kill, leaves nothing that the next
    call does not remove.

    Args:
        folder: of a graph, without clusters.
        out: must not exist, or be empty.
        clusters: c, from 1 to N. Empty clusters are dropped, so there may be fewer. Defaults to as
            many as batches need to show the classes (see `gistgnn.graphs.clustering`); for this the
            graph is cut up to three times.
        method: "metis"; "stream", which reads the edges in blocks; "random"; or "auto": METIS where
            its memory fits, otherwise stream.
        memory: bytes that the process, and METIS's, may take, without the pages of mapped files.
            Defaults to 2 GiB, or to 1 GiB more than it takes already.
        seed: the same seed gives the same clusters.
        progress: show it on standard error.
    """
    source = Path(folder).expanduser()
    target = Path(out).expanduser()
    check_choice("method", method, FOLDER_METHODS)
    seed = check_seed(seed)
    graph = load_folder(source)  # checks the values of nodes
    check_sources(graph.edges.col, graph.num_nodes)
    if clusters is not None:
        clusters = check_count("clusters", clusters, most=graph.num_nodes)
    if graph.cluster_ptr is not None:
        raise InputError(f"{source} is in clusters already: give the folder from which it was made")
    room = room_within(memory)
    with whole_folder(target) as made:
        method = _choose_method(method, graph.edges, room)
        with spinner("cutting the graph into clusters", shown=progress):
            parts = _clusters_of(graph, clusters, method, seed)
        with spinner("writing the graph in their order", shown=progress):
            manifest, inside = _write_renumbered(source, parts, room, made)
        return Partitioned(manifest, method, parts.sizes.numpy(), inside)


def _clusters_of(graph: Graph, count: int | None, method: str, seed: int) -> Clusters:
    """Cut a graph into ``count`` clusters, by default into as many as batches need."""

    def cut(count: int) -> Clusters:
        if method != "stream":
            return cluster(graph.edges, graph.num_nodes, count, method, seed)
        # These are not cached: they are written to a folder.
        return clusters_of_parts(streaming.stream_clusters(graph.edges, count, seed), count)

    def share(made: Clusters, per_batch: int) -> float | None:
        return entropy_share(
            graph.y, graph.train.nonzero().squeeze(1), made.assignment, per_batch, seed
        )

    return cut(count) if count else choose_clusters(cut, graph.num_nodes, share)[0]


def _choose_method(method: str, edges: CSR, room: int) -> str:
    """Return the method for a graph, and say why.

    Raises:
        InputError: the method needs more than ``room`` bytes.
    """
    nodes = edges.num_nodes
    count = edges.num_edges
    needs = {
        "metis": metis.metis_bytes(nodes, count) + _NODE * nodes + _EDGE * count,
        "stream": streaming.stream_bytes(nodes, count),
    }
    available = f"{size(room)} are left of --memory"
    if method == "auto":
        method = "metis" if needs["metis"] <= room else "stream"
        fits = "fits" if method == "metis" else "does not fit"
        log.info(
            f"METIS needs about {size(needs['metis'])} for {count:,} edges, which {fits}, as "
            f"{available}: {method}"
        )
    if (needed := needs.get(method, 0)) > room:
        hint = "give more" if method == "stream" else "give more, or --method stream"
        raise InputError(
            f"{method} needs about {size(needed)} of memory for {nodes:,} nodes and {count:,} "
            f"edges, and {available}: {hint}"
        )
    return method


def _write_renumbered(
    source: Path, clusters: Clusters, room: int, folder: Path
) -> tuple[Manifest, float]:
    """Write a folder in the order of clusters.

    Returns its manifest and the share of edges inside clusters.
    """
    # It is written in blocks of new numbers. A block's rows are read from the mapped arrays in
    # ascending order of the old numbers, which is faster on a disk.
    manifest, tensors = open_arrays(source)
    old = {name: tensor.numpy() for name, tensor in tensors.items()}
    node = clusters.order.numpy()
    most = min(max((room - _RENUMBERED * len(node)) // 4, _LEAST), _MOST)  # bytes in memory at once
    arrays, inside = _write_edges(old, clusters, most // _ENTRY, folder)
    for name in ("x", "y", "split"):
        array = old[name]
        file = _writer_like(array, folder, name)
        rows = max(most // array[:1].nbytes, 1)
        for start in range(0, len(node), rows):
            numbers = node[start : start + rows]
            ascending = np.argsort(numbers)
            block = np.empty((len(numbers), *array.shape[1:]), array.dtype)
            block[ascending] = array[numbers[ascending]]
            file.append(block)
        arrays[name] = file.finish()
    if "id" in old:  # it stays in the order of the numbers in `node`
        arrays["id"] = write_array(folder, "id", old["id"])
    arrays["node"] = write_array(folder, "node", node)
    arrays["cluster_ptr"] = write_array(folder, "cluster_ptr", clusters.ptr.numpy())
    made = msgspec.structs.replace(
        manifest, arrays={name: arrays[name] for name in _ARRAYS if name in arrays}
    )
    made.write(folder)
    return made, inside / made.edges


def _write_edges(
    old: dict[str, Array], clusters: Clusters, most: int, folder: Path
) -> tuple[dict[str, ArrayEntry], int]:
    """Write the arrays of the edges, about ``most`` edges at once.

    Also returns how many edges are inside clusters.
    """
    files = {
        name: _writer_like(old[name], folder, name) for name in ("col", *EDGE_DATA) if name in old
    }
    order = clusters.order.numpy()
    edges = CSR(torch.from_numpy(old["rowptr"]), torch.from_numpy(old["col"]))
    cluster_of = np.arange(len(clusters), dtype=np.int32).repeat(clusters.sizes)  # by new numbers
    place_of_node = np.empty(len(order), old["col"].dtype)
    place_of_node[order] = np.arange(len(place_of_node), dtype=place_of_node.dtype)
    rowptr = np.concatenate([[0], np.cumsum(np.diff(old["rowptr"])[order])])
    inside = 0
    for nodes in row_chunks(torch.from_numpy(rowptr), most, most):
        edges_of_block, entries_of_block = edges.rows(clusters.order[nodes])
        source = place_of_node[edges_of_block.col.numpy()]
        target = edges_of_block.targets().numpy() + nodes.start
        inside += int((cluster_of[source] == cluster_of[target]).sum())
        # Equal edges keep their order, as their data may differ.
        sorting = np.lexsort((source, target))
        for name, file in files.items():
            if name == "col":
                file.append(source[sorting])
            else:
                file.append(old[name][np.asarray(entries_of_block)[sorting]])
    entries = {name: file.finish() for name, file in files.items()}
    return entries | {"rowptr": write_array(folder, "rowptr", rowptr)}, inside


def _writer_like(array: Array, folder: Path, name: str) -> ArrayWriter:
    """Return a writer of an array of the same type, with rows of the same shape."""
    return ArrayWriter(folder, name, array.dtype, array.shape[1:])
