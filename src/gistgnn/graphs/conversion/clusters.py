"""The cluster of every node of a graph folder, by the method that the memory allows."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from gistgnn.errors import InputError
from gistgnn.graphs import metis, streaming
from gistgnn.graphs.clustering import METHODS, cluster
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.on_disk.making import Making, read_numbers
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.graphs.on_disk.npy import ArrayWriter
from gistgnn.graphs.streaming import RowsOnDisk
from gistgnn.utils.formats import size

FOLDER_METHODS = ("auto", *METHODS)

_NODE, _EDGE = 24, 12  # bytes of this process beside METIS's: the edges, and their copy without loops

log = logging.getLogger(__name__)


def chosen(method: str, reader: RowsOnDisk, room: int) -> str:
    """Return the method for a graph, and say why.

    Args:
        method: one of `FOLDER_METHODS`.
        reader: of the graph.
        room: bytes that this process may take beside what it takes already, with METIS's process.

    Raises:
        InputError: the method needs more.
    """
    nodes, edges = reader.nodes, reader.edges
    needs = {
        "metis": metis.metis_bytes(nodes, edges) + _NODE * nodes + _EDGE * edges,
        "stream": streaming.stream_bytes(nodes, edges),
    }
    has = f"{size(room)} are left of --memory"
    if method == "auto":
        method = "metis" if needs["metis"] <= room else "stream"
        fits = "fits" if method == "metis" else "does not fit"
        log.info(f"METIS needs about {size(needs['metis'])} for {edges:,} edges, which {fits}, as {has}: {method}")
    if (needed := needs.get(method, 0)) > room:
        less = "" if method == "stream" else ", or --method stream"
        raise InputError(
            f"{method} needs about {size(needed)} of memory for {nodes:,} nodes and {edges:,} edges, and "
            f"{has}: give more{less}"
        )
    return method


def find_clusters(
    method: str, reader: RowsOnDisk, clusters: int, seed: int, work: Making, seen: Callable[[float], None]
) -> npt.NDArray[np.integer]:
    """Return the cluster of every node: [N]; see `gistgnn.graphs.clustering.cluster`."""
    if method == "stream":
        return streaming.partition(reader, clusters, seed, _KeptStages(work, reader.nodes), seen)
    edges = reader.whole() if method == "metis" else CSR(torch.zeros(reader.nodes + 1), torch.zeros(0))
    return cluster(edges, reader.nodes, clusters, method, seed).assignment.numpy()


def write_clusters(part: npt.NDArray[np.integer], work: Making) -> dict[str, StoredArray]:
    """Write `node.npy` and `cluster_ptr.npy`; empty clusters are dropped."""
    sizes = np.bincount(part)
    bounds = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
    arrays = {}
    for name, values in (("node", np.argsort(part, kind="stable")), ("cluster_ptr", bounds)):
        with ArrayWriter(work.folder / f"{name}.npy", np.int64) as file:
            file.append(values)
            arrays[name] = file.finish()
    return arrays


class _KeptStages:
    """Keeps the clusters after every stage of `streaming.partition` in the folder that is made."""

    def __init__(self, work: Making, nodes: int) -> None:
        self._work, self._nodes = work, nodes

    def load(self) -> tuple[int, streaming.Part] | None:
        stages = self._work.reached("stages")
        return None if stages is None else (stages, read_numbers(self._path(stages), np.dtype(np.int32), self._nodes))

    def save(self, stages: int, part: streaming.Part) -> None:
        with self._path(stages).open("wb") as file:
            part.tofile(file)
            file.flush()
            os.fsync(file.fileno())
        self._work.record("stages", stages)
        self._path(stages - 1).unlink(missing_ok=True)

    def _path(self, stages: int) -> Path:
        return self._work.folder / f"stage-{stages}.clusters"
