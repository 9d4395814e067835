"""New numbers for the nodes of a graph folder: rows are written to files by ranges of new numbers, and put in order.

A file of a range holds rows in the order of the old numbers. So the disk is read and written from first to last, and
what is out of order is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.on_disk import Manifest
from gistgnn.graphs.on_disk.making import Making, read_numbers
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.graphs.on_disk.npy import ArrayWriter
from gistgnn.graphs.on_disk.reading import ArrayFile
from gistgnn.graphs.streaming import RowsOnDisk

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

NODE_ARRAYS = ("x", "y", "split")
Seen = Callable[[int], None]


@dataclass(frozen=True)
class Renumbering:
    """New numbers of nodes.

    Attributes:
        order: [N] the old number of every new node.
        place: [N] the new number of every old node.
    """

    order: Array
    place: Array

    @classmethod
    def of(cls, order: Array) -> Renumbering:
        """Return the new numbers for an order of the old ones: a permutation of 0 to N − 1."""
        place = np.empty_like(order)
        place[order] = np.arange(len(order), dtype=order.dtype)
        return cls(order, place)

    def ranks(self, first: int, last: int) -> Ints:
        """Return where the new nodes of a range are among them in the order of the old numbers: [last - first]."""
        ranks = np.empty(last - first, np.int64)
        ranks[np.argsort(self.order[first:last])] = np.arange(last - first)
        return ranks


@dataclass(frozen=True)
class Ranges:
    """Ranges of new numbers.

    Attributes:
        bounds: [ranges + 1], from 0 to N.
        folder: where the files of the ranges are.
    """

    bounds: list[int]
    folder: Path

    def path(self, name: str, number: int) -> Path:
        """Return the file of an array and a range."""
        return self.folder / f"{name}-{number}.rows"

    def append(self, name: str, values: Array, sizes: Ints) -> None:
        """Append rows to the files of the ranges.

        Args:
            name: of the array.
            values: the rows, range by range.
            sizes: [ranges] how many rows each gets.

        Raises:
            OSError: a file cannot be written.
        """
        ends = np.cumsum(sizes)
        for number in np.flatnonzero(sizes):
            with self.path(name, int(number)).open("ab", buffering=0) as file:
                part = np.ascontiguousarray(values[ends[number] - sizes[number] : ends[number]])
                left = part.reshape(-1).view(np.uint8).data
                while left:
                    left = left[file.write(left) :]

    def apart(self, place: Array) -> tuple[Ints, Ints]:
        """Return an order of nodes in which those of a range are together, and how many each range has.

        Args:
            place: [n] their new numbers.
        """
        of = np.searchsorted(np.array(self.bounds), place, "right") - 1
        return np.argsort(of, kind="stable"), np.bincount(of, minlength=len(self.bounds) - 1)


def equal_bounds(nodes: int, rows: int) -> list[int]:
    """Return the bounds of ranges of at most ``rows`` nodes."""
    return [*range(0, nodes, max(rows, 1)), nodes]


def bounds_by_edges(degree: Array, edges: int, nodes: int) -> list[int]:
    """Return the bounds of ranges of at most so many edges and nodes; a node with more edges has its own range.

    Args:
        degree: [N] edges into every new node.
        edges: of a range.
        nodes: of a range.
    """
    before = np.concatenate([[0], np.cumsum(degree, dtype=np.int64)])
    bounds = [0]
    while (begin := bounds[-1]) < len(degree):
        fits = int(np.searchsorted(before, before[begin] + edges, "right")) - 1
        bounds.append(min(max(fits, begin + 1), begin + nodes, len(degree)))
    return bounds


def scatter_nodes(folder: Path, manifest: Manifest, place: Array, ranges: Ranges, rows: int, seen: Seen) -> None:
    """Write x, y and split to the files of the ranges.

    Args:
        folder: of the graph.
        manifest: of the folder.
        place: [N] the new numbers.
        ranges: see `Ranges`; what is in its files already is removed.
        rows: that are read at once.
        seen: is called with the number of nodes that are written.
    """
    _remove_files(ranges)
    arrays = {name: ArrayFile.of(folder, manifest, name) for name in NODE_ARRAYS}
    for first in range(0, manifest.nodes, rows):
        last = min(first + rows, manifest.nodes)
        order, sizes = ranges.apart(place[first:last])
        for name, array in arrays.items():
            ranges.append(name, array.rows([(first, last)])[order], sizes)
        seen(last)


def gather_nodes(
    work: Making, manifest: Manifest, numbers: Renumbering, ranges: Ranges, seen: Seen
) -> dict[str, StoredArray]:
    """Write x, y and split in their new order. Finished ranges are recorded, and not written again."""
    done = work.reached("nodes") or 0
    with ExitStack() as stack:
        files = {}
        for name in NODE_ARRAYS:
            array = manifest.arrays[name]
            writer = ArrayWriter(work.folder / f"{name}.npy", array.dtype, array.shape[1:], rows=ranges.bounds[done])
            files[name] = stack.enter_context(writer)
        for number, (first, last) in _after(ranges, done):
            ranks = numbers.ranks(first, last)
            for name, file in files.items():
                file.append(_read(ranges.path(name, number), file.dtype, file.columns, last - first)[ranks])
            _finish_range(work, "nodes", number, files, ranges)
            seen(last)
        return {name: file.finish() for name, file in files.items()}


def new_degrees(reader: RowsOnDisk, place: Array) -> npt.NDArray[np.int32]:
    """Return the number of edges into every new node: [N]."""
    degree = np.empty(reader.nodes, np.int32)
    for first, ptr in reader.pointers():
        degree[place[first : first + len(ptr) - 1]] = np.diff(ptr)
    return degree


def scatter_edges(
    folder: Path, manifest: Manifest, place: Array, ranges: Ranges, data: tuple[str, ...], edges: int, seen: Seen
) -> None:
    """Write the new numbers of all sources, and the edge data, to the files of the ranges.

    Args:
        folder: see `scatter_nodes`; likewise ``manifest``, ``place``, ``ranges`` and ``seen``.
        data: the names of the edge data.
        edges: that are read at once.
    """
    _remove_files(ranges)
    reader = RowsOnDisk(folder, manifest)
    dtype = np.dtype(manifest.arrays["col"].dtype)
    arrays = {name: ArrayFile.of(folder, manifest, name) for name in data}
    for rows in reader.rows(edges, edges):
        order, counts = ranges.apart(place[rows.nodes])
        degree = np.diff(rows.rowptr)[order]
        entries = entries_of(rows.rowptr, order)
        ends = np.concatenate([[0], np.cumsum(degree)])[np.cumsum(counts)]
        sizes = np.diff(ends, prepend=0)
        ranges.append("col", place[rows.source[entries]].astype(dtype, copy=False), sizes)
        for name, array in arrays.items():
            ranges.append(name, array.rows([(rows.edges.start, rows.edges.stop)])[entries], sizes)
        seen(rows.nodes.stop)


def gather_edges(
    work: Making,
    manifest: Manifest,
    numbers: Renumbering,
    degree: Array,
    ranges: Ranges,
    data: tuple[str, ...],
    seen: Seen,
) -> dict[str, StoredArray]:
    """Write rowptr, col and the edge data in their new order. Finished ranges are recorded, and not written again.

    Args:
        work: the folder that is made.
        manifest: of the graph.
        numbers: of its nodes.
        degree: [N] edges into every new node.
        ranges: of targets.
        data: the names of the edge data.
        seen: is called with the number of nodes whose edges are written.
    """
    done = work.reached("edges") or 0
    before = int(degree[: ranges.bounds[done]].sum(dtype=np.int64))
    with ExitStack() as stack:
        files = {}
        for name in ("rowptr", "col", *data):
            array = manifest.arrays[name]
            rows = before if name != "rowptr" else ranges.bounds[done] + (done > 0)
            writer = ArrayWriter(work.folder / f"{name}.npy", array.dtype, array.shape[1:], rows=rows)
            files[name] = stack.enter_context(writer)
        if not done:
            files["rowptr"].append(np.zeros(1, np.int64))
        for number, (first, last) in _after(ranges, done):
            ranks = numbers.ranks(first, last)
            rowptr, entries, source = _sorted_rows(ranges, number, ranks, degree[first:last], files, len(data) > 0)
            files["rowptr"].append(rowptr[1:] + files["col"].rows)
            files["col"].append(source)
            for name in data:
                values = _read(ranges.path(name, number), files[name].dtype, files[name].columns, len(entries))
                files[name].append(values[entries])
            _finish_range(work, "edges", number, files, ranges)
            seen(last)
        return {name: file.finish() for name, file in files.items()}


def entries_of(rowptr: Ints, rows: Ints) -> Ints:
    """Return the places of the entries of some rows, row after row.

    Args:
        rowptr: [n + 1] where the entries of every row begin.
        rows: numbers of rows, in any order.
    """
    degree = rowptr[rows + 1] - rowptr[rows]
    begin = np.cumsum(degree) - degree
    return np.arange(int(degree.sum())) + (rowptr[rows] - begin).repeat(degree)


def _sorted_rows(
    ranges: Ranges, number: int, ranks: Ints, degree: Array, files: dict[str, ArrayWriter], with_data: bool
) -> tuple[Ints, Ints, Array]:
    """Return, for the targets of a range, where their edges begin, the edges' places in the file, and the sources."""
    in_file = np.zeros(len(ranks) + 1, np.int64)
    in_file[1 + ranks] = degree
    entries = entries_of(np.cumsum(in_file), ranks)
    source = _read(ranges.path("col", number), files["col"].dtype, (), len(entries))
    rowptr = np.concatenate([[0], np.cumsum(degree, dtype=np.int64)])
    bits = 63 - len(ranks).bit_length()
    keys = np.arange(len(ranks)).repeat(degree)
    keys <<= bits
    keys |= source[entries]
    if with_data:  # equal edges keep their order, as their data may differ
        order = np.argsort(keys, kind="stable")
        keys, entries = keys[order], entries[order]
    else:
        keys.sort()
    keys &= (1 << bits) - 1
    return rowptr, entries, keys.astype(source.dtype)


def _after(ranges: Ranges, done: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Return the numbers and the bounds of the ranges that are not done yet."""
    return ((number, pair) for number, pair in enumerate(pairwise(ranges.bounds)) if number >= done)


def _finish_range(work: Making, name: str, number: int, files: dict[str, ArrayWriter], ranges: Ranges) -> None:
    for file in files.values():
        file.sync()
    work.record(name, number + 1)
    for array in files:
        ranges.path(array, number).unlink(missing_ok=True)


def _read(path: Path, dtype: np.dtype[Any], columns: tuple[int, ...], rows: int) -> Array:
    """Return so many rows."""
    return read_numbers(path, dtype, rows * int(np.prod(columns))).reshape(rows, *columns)


def _remove_files(ranges: Ranges) -> None:
    """Remove what a killed process has written."""
    for path in ranges.folder.glob("*.rows"):
        path.unlink()
