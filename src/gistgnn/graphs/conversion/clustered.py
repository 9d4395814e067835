"""`partition_folder`: cuts the graph of a folder into clusters, and writes it to a folder in the order of these."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.budget import DEFAULT, Budget, require_disk, written_bytes
from gistgnn.graphs.conversion.clusters import FOLDER_METHODS, chosen, find_clusters, write_clusters
from gistgnn.graphs.conversion.renumbering import (
    NODE_ARRAYS,
    Ranges,
    Renumbering,
    bounds_by_edges,
    equal_bounds,
    gather_edges,
    gather_nodes,
    new_degrees,
    scatter_edges,
    scatter_nodes,
)
from gistgnn.graphs.conversion.running import Running, plain, stored
from gistgnn.graphs.edge_data import EDGE_DATA
from gistgnn.graphs.on_disk import Manifest
from gistgnn.graphs.on_disk.making import Making, making, read_numbers
from gistgnn.graphs.on_disk.npy import HEADER, ArrayWriter
from gistgnn.graphs.on_disk.reading import ArrayFile
from gistgnn.graphs.streaming import RowsOnDisk
from gistgnn.utils.checks import check_count, check_number
from gistgnn.utils.checksums import digest_of
from gistgnn.utils.formats import size
from gistgnn.utils.random_streams import check_seed

Ints = npt.NDArray[np.int64]

_NODE = 16  # bytes in memory for a node: its new number, its old one, and its edges
_ENTRY = 56  # bytes in memory for an edge of a range, with copies
_BLOCK = 2**19  # edges or nodes that are counted at once

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partitioned:
    """What `partition_folder` has made.

    Attributes:
        manifest: of the folder.
        method: "metis", "stream" or "random"; None if the folder was there already.
        sizes: [clusters] nodes of every cluster.
        edges_inside: the share of the edges with both ends in one cluster.
        seconds: of each pass that was run, by name; empty if the folder was there already.
    """

    manifest: Manifest
    method: str | None
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

    If the process is killed, the same call goes on where it stopped. Nothing is at ``out`` until all is written.

    Args:
        folder: of a graph, without clusters.
        out: must not exist, or be empty.
        clusters: c, from 1 to N. Empty clusters are dropped, so there may be fewer.
        method: "metis"; "stream", which reads the edges in blocks; "random"; or "auto": METIS where its memory fits,
            otherwise stream.
        memory: bytes that the process, and METIS's, may take; None: 2 GiB, or 1 GiB more than it takes already.
        seed: the same seed gives the same clusters.
        progress: show it on standard error.

    Raises:
        InputError: bad input, too little memory, or a folder that cannot be written. Nothing is left behind, except
            after a full disk.
    """
    if method not in FOLDER_METHODS:
        raise InputError(f"method is {method!r:.80}, expected one of {', '.join(FOLDER_METHODS)}")
    if memory is not None:
        check_number("memory", memory, above=True)
    check_seed(seed)
    source, target = Path(folder).expanduser(), Path(out).expanduser()
    manifest = Manifest.read(source)
    check_count("clusters", clusters, most=manifest.nodes)
    if "cluster_ptr" in manifest.arrays:
        raise InputError(f"{source} is in clusters already: give the folder from which it was made")
    if target.exists() and target.samefile(source):
        raise InputError(f"{target} is the graph itself: choose another folder for its clusters")
    held = Budget.held()
    allowed = memory or max(DEFAULT, held + DEFAULT // 2)
    budget = Budget.within(allowed, held, _NODE * manifest.nodes)
    identity = {"graph": digest_of(asdict(manifest)), "clusters": clusters, "method": method, "seed": seed}
    with making(target, identity) as work:
        if work is None:
            return _described(target, None, {})
        return _Passes(source, manifest, work, budget, allowed - held, progress).run(clusters, method, seed)


class _Passes:
    """The passes in which one folder is made."""

    def __init__(
        self, source: Path, manifest: Manifest, work: Making, budget: Budget, room: int, progress: bool
    ) -> None:
        self._source, self._manifest, self._work = source, manifest, work
        self._budget, self._room = budget, room
        self._running = Running(work, f"partitioning {manifest.name}" if progress else None)
        self._data = tuple(name for name in EDGE_DATA if name in manifest.arrays)

    def run(self, clusters: int, method: str, seed: int) -> Partitioned:
        self._require_disk()
        self._running.run(
            {
                "clusters": lambda: self._clusters(clusters, method, seed),
                "nodes apart": self._nodes_apart,
                "nodes": self._nodes,
                "edges apart": self._edges_apart,
                "edges": self._edges,
            }
        )
        done, of_source = self._running.result, self._manifest
        arrays = {**done("clusters")["arrays"], **done("nodes"), **done("edges")}
        if "x_scale" in of_source.arrays:
            arrays |= plain({"x_scale": self._copied("x_scale")})
        facts = {name: getattr(of_source, name) for name in ("name", "nodes", "edges", "features", "classes", "task")}
        self._work.publish(Manifest(**facts, arrays=stored(arrays), made_from=self._work.made_from))
        return _described(self._work.target, done("clusters")["method"], self._running.seconds)

    def _clusters(self, clusters: int, method: str, seed: int) -> Any:
        reader = RowsOnDisk(self._source, self._manifest)
        if (found := self._work.reached("method")) is None:
            found = chosen(method, reader, self._room)
            self._work.record("method", found)
        part = find_clusters(found, reader, clusters, seed, self._work, self._running.within)
        return {"method": found, "arrays": plain(write_clusters(part, self._work))}

    def _nodes_apart(self) -> Any:
        arrays = self._manifest.arrays
        width = max(arrays[name].nbytes // self._manifest.nodes for name in NODE_ARRAYS) + 16
        bounds = equal_bounds(self._manifest.nodes, self._budget.node_rows(width // 4))
        rows = self._budget.node_rows(width // 4)
        ranges = Ranges(bounds, self._work.folder)
        scatter_nodes(self._source, self._manifest, self._numbers.place, ranges, rows, self._seen)
        return bounds

    def _nodes(self) -> Any:
        ranges = Ranges(self._running.result("nodes apart"), self._work.folder)
        return plain(gather_nodes(self._work, self._manifest, self._numbers, ranges, self._seen))

    def _edges_apart(self) -> Any:
        most = max(self._budget.keys // self._copies, 1)
        bounds = bounds_by_edges(self._degree, most, most)
        ranges = Ranges(bounds, self._work.folder)
        edges = max(self._budget.edge_rows // self._copies, 1)
        scatter_edges(self._source, self._manifest, self._numbers.place, ranges, self._data, edges, self._seen)
        return bounds

    def _edges(self) -> Any:
        ranges = Ranges(self._running.result("edges apart"), self._work.folder)
        made = gather_edges(self._work, self._manifest, self._numbers, self._degree, ranges, self._data, self._seen)
        return plain(made)

    @property
    def _copies(self) -> int:
        """How much more memory an edge takes because of its data, about."""
        arrays = self._manifest.arrays
        return 1 + sum(4 * arrays[name].nbytes // self._manifest.edges for name in self._data) // _ENTRY

    @cached_property
    def _numbers(self) -> Renumbering:
        order = read_numbers(self._work.folder / "node.npy", np.dtype(np.int64), self._manifest.nodes, HEADER)
        return Renumbering.of(order.astype(np.int32) if len(order) <= 2**31 else order)

    @cached_property
    def _degree(self) -> npt.NDArray[np.int32]:
        return new_degrees(RowsOnDisk(self._source, self._manifest), self._numbers.place)

    def _copied(self, name: str) -> Any:
        """Copy a small array."""
        array = self._manifest.arrays[name]
        rows = ArrayFile.of(self._source, self._manifest, name).rows([(0, array.shape[0])])
        with ArrayWriter(self._work.folder / f"{name}.npy", array.dtype, array.shape[1:]) as file:
            file.append(rows)
            return file.finish()

    def _seen(self, nodes: int) -> None:
        self._running.within(nodes / self._manifest.nodes)

    def _require_disk(self) -> None:
        """Refuse at once what cannot fit, and say what is needed."""
        arrays, nodes = self._manifest.arrays, self._manifest.nodes
        rows = sum(arrays[name].nbytes for name in NODE_ARRAYS)
        edges = sum(arrays[name].nbytes for name in ("col", *self._data))
        self._work.needed = 24 * nodes + rows + max(rows, 2 * edges)
        held = written_bytes(self._work.folder)
        require_disk(self._work.target, self._work.needed, held, "")
        log.info(
            f"{self._work.target} will take {size(self._manifest.nbytes + 8 * nodes)}, and while it is made about "
            f"{size(self._work.needed)}"
        )


def _described(folder: Path, method: str | None, seconds: dict[str, float]) -> Partitioned:
    manifest = Manifest.read(folder)
    file = ArrayFile.of(folder, manifest, "cluster_ptr")
    ptr = file.rows([(0, file.shape[0])])
    return Partitioned(manifest, method, np.diff(ptr), edges_inside(folder, manifest, ptr), seconds)


def edges_inside(folder: Path, manifest: Manifest, ptr: Ints) -> float:
    """Return the share of the edges of a folder of clusters with both ends in one cluster, in one pass over them."""
    cluster = np.arange(len(ptr) - 1, dtype=np.int32).repeat(np.diff(ptr))
    inside = 0
    for rows in RowsOnDisk(folder, manifest).rows(_BLOCK, _BLOCK):
        inside += int((cluster[rows.source] == cluster[rows.nodes].repeat(np.diff(rows.rowptr))).sum())
    return inside / manifest.edges
