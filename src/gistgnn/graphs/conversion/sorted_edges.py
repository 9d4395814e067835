"""Sorts edges that do not fit in memory: the ranges of targets one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.duck import quoted

_KEY_BYTES = 40  # of memory, for each edge of a range
_BINS = 2**14  # of targets, whose edges are counted
_FILE = "edges.parquet"


def sorted_keys(
    connection: Any, edges: str, nodes: int, undirected: bool, folder: Path, memory: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the keys of edges in ascending order: the target's number above the source's, 32 bits each.

    Args:
        connection: of `gistgnn.graphs.duck.database`.
        edges: SQL for all edges, with the columns source and target. Equal ones become one.
        nodes: number of nodes.
        undirected: add the reverse of every edge.
        folder: gets a file of all edges.
        memory: bytes that the edges of a range may take.
    """
    connection.execute("SET preserve_insertion_order = false")
    file = quoted(str(folder / _FILE))
    connection.execute(f"COPY ({_checked(edges, nodes)}) TO {file} (FORMAT parquet, COMPRESSION uncompressed)")
    stored = f"SELECT source, target FROM read_parquet({file})"
    if undirected:
        stored += f" UNION ALL SELECT target, source FROM read_parquet({file})"
    width = -(-nodes // _BINS)
    counted = connection.sql(f"SELECT target // {width}, count(*) FROM ({stored}) GROUP BY 1").fetchall()
    for first, last in _ranges(dict(counted), memory // _KEY_BYTES):
        wanted = f"target BETWEEN {first * width} AND {last * width + width - 1}"
        query = f"SELECT (target::BIGINT << 32) | source::BIGINT AS key FROM ({stored}) WHERE {wanted}"
        keys = np.asarray(connection.sql(query).fetchnumpy()["key"])
        keys.sort()
        new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        yield keys if new.all() else keys[new]


def _checked(edges: str, nodes: int) -> str:
    """Return SQL for edges as int32, which ends with an error at an edge of no nodes."""
    valid = " AND ".join(f"{end} BETWEEN 0 AND {nodes - 1} AND {end} = floor({end})" for end in ("source", "target"))
    ends = " || ' to ' || ".join(f"coalesce({end}::VARCHAR, 'nothing')" for end in ("source", "target"))
    problem = f"'an edge goes from ' || {ends} || '; expected node numbers from 0 to {nodes - 1}'"
    source = f"CASE WHEN {valid} THEN source::INTEGER ELSE error({problem}) END"
    return f"SELECT {source} AS source, target::INTEGER AS target FROM ({edges})"


def _ranges(counts: dict[int, int], most: int) -> Iterator[tuple[int, int]]:
    """Join neighbouring bins that have at most so many edges together; yield the first and last of each range."""
    held, first, last = 0, -1, -1
    for number in sorted(counts):
        if held and held + counts[number] > most:
            yield first, last
            held = 0
        if not held:
            first = number
        held, last = held + counts[number], number
    if held:
        yield first, last
