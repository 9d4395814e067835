"""`convert`: writes a graph of any size to a folder, in passes."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.buckets import MOST_NODES, Buckets, scatter
from gistgnn.graphs.conversion.budget import DEFAULT, Budget, disk_bytes, require_disk, written_bytes
from gistgnn.graphs.conversion.edge_data import write_sorted
from gistgnn.graphs.conversion.from_graph import GraphSource
from gistgnn.graphs.conversion.nodes import X_DTYPES, largest_features, write_nodes
from gistgnn.graphs.conversion.running import Running, plain, stored
from gistgnn.graphs.conversion.sort import sort_buckets
from gistgnn.graphs.conversion.source import Source
from gistgnn.graphs.conversion.sources import find_source
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.on_disk import Manifest
from gistgnn.graphs.on_disk.making import Making, making
from gistgnn.utils.checks import check_number


@dataclass(frozen=True)
class Converted:
    """What `convert` has made.

    Attributes:
        manifest: of the folder.
        seconds: of each pass that was run, by name; empty if the graph was there already.
    """

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

    If the process is killed, the same call goes on where it stopped. Nothing is at ``folder`` until all is written.

    Args:
        source: a name or file as for `gistgnn.graphs.load`; a table of edges in CSV or Parquet, or a folder of such
            tables; a folder of OGB's raw files; or a graph in memory.
        folder: must not exist, or be empty.
        nodes: the table of nodes, for a table of edges.
        dtype: of the features: "float32", "float16", or "int8" with a scale for each feature.
        undirected: add the reverse of every edge. None: for OGB's raw files, as in the data sets of these names, and
            for nothing else.
        memory: bytes that the process may take; None: 2 GiB, or 1 GiB more than it takes already. Files other than a
            `.pt`, and a `.npz` with edge data, are read in blocks; these and named data sets are read whole first,
            which is not counted.
        data_root: see `gistgnn.graphs.load`.
        progress: show it on standard error.

    Raises:
        InputError: bad input, too little memory, or a folder that cannot be written. Nothing is left behind, except
            after a full disk.
    """
    if dtype not in X_DTYPES:
        raise InputError(f"dtype is {dtype!r:.80}, expected one of {', '.join(X_DTYPES)}")
    if memory is not None:
        check_number("memory", memory, above=True)
    held = Budget.held()
    if isinstance(source, Graph):
        found: Source = GraphSource(source)
    else:
        found = find_source(source, None if nodes is None else Path(nodes), data_root)
        if not isinstance(found, GraphSource):  # a graph in memory is not counted, but what others have read is
            held = Budget.held()
    target, both = Path(folder).expanduser(), found.undirected if undirected is None else undirected
    if isinstance(found, GraphSource) and found.graph.edge_data and both:
        raise InputError(f"{found.name} has edge data: its edges cannot be made undirected; leave --undirected out")
    budget = Budget.within(memory or max(DEFAULT, held + DEFAULT // 2), held, found.nodes or 0)
    identity = {"name": found.name, "key": found.key, "dtype": dtype, "undirected": both}
    with making(target, identity) as work:
        if work is None:
            return Converted(Manifest.read(target), {})
        return _Passes(found, work, dtype, both, budget, progress).run()


class _Passes:
    """The passes of one conversion."""

    def __init__(
        self, source: Source, work: Making, dtype: str, undirected: bool, budget: Budget, progress: bool
    ) -> None:
        self._source, self._work, self._dtype = source, work, dtype
        self._undirected, self._budget = undirected, budget
        self._running = Running(work, f"converting {source.name}" if progress else None)
        self._within, self._done = self._running.within, self._running.result

    def run(self) -> Converted:
        edge_data = isinstance(self._source, GraphSource) and bool(self._source.graph.edge_data)
        names = ["range"] * (self._dtype == "int8") + ["nodes"] + (["data"] if edge_data else ["edges", "sort"])
        self._require_disk(self._source.nodes or 0)
        self._running.run({name: self._naming()(getattr(self, f"_{name}")) for name in names})
        manifest = self._manifest(names[-1])
        self._work.publish(manifest)
        return Converted(manifest, self._running.seconds)

    def _range(self) -> Any:
        return largest_features(self._source, self._rows, self._nodes_seen)

    def _nodes(self) -> Any:
        found = write_nodes(self._source, self._work, self._dtype, self._done("range"), self._rows, self._nodes_seen)
        if found["nodes"] > MOST_NODES:
            raise InputError(f"there are {found['nodes']:,} nodes; expected at most {MOST_NODES:,}")
        self._require_disk(found["nodes"])
        return {**found, "arrays": plain(found["arrays"])}

    def _edges(self) -> Any:
        budget, buckets = self._budget, self._buckets()
        rows = budget.edge_rows
        given = scatter(
            self._source,
            buckets,
            self._work.folder,
            self._undirected,
            rows,
            lambda done: self._within(done / max(self._source.edges, 1)),
        )
        return {"given": given, "width": buckets.width}

    def _sort(self) -> Any:
        buckets = Buckets(self._done("nodes")["nodes"], self._done("edges")["width"])
        return plain(sort_buckets(buckets, self._work, self._budget.keys, self._within))

    def _data(self) -> Any:
        assert isinstance(self._source, GraphSource)
        return plain(write_sorted(self._source.graph, self._work))

    @property
    def _rows(self) -> int:
        return self._budget.node_rows(self._source.features)

    def _buckets(self) -> Buckets:
        return self._budget.buckets(self._done("nodes")["nodes"], self._source.edges * (1 + self._undirected))

    def _nodes_seen(self, done: int) -> None:
        if self._source.nodes:
            self._within(done / self._source.nodes)

    def _manifest(self, edges: str) -> Manifest:
        nodes = self._done("nodes")
        arrays = stored({**nodes["arrays"], **self._done(edges)})
        (count,) = arrays["col"].shape
        return Manifest(
            self._source.name,
            nodes["nodes"],
            count,
            self._source.features,
            nodes["classes"],
            nodes["task"],
            arrays,
            self._work.made_from,
        )

    def _require_disk(self, nodes: int) -> None:
        """Refuse at once what cannot fit; remember what is needed for the message of a full disk."""
        edges = self._source.edges * (1 + self._undirected)
        self._work.needed = disk_bytes(self._source, nodes, edges, self._dtype)
        least = disk_bytes(self._source, nodes, edges if self._source.counted else 0, self._dtype)
        require_disk(self._work.target, least, written_bytes(self._work.folder))

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the source in messages about what is in it."""
        try:
            yield
        except InputError as error:
            full = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)
            place = self._source.place
            if full or not place or str(error).startswith(place):
                raise
            raise InputError(f"{place}: {error}") from error
