"""The second pass of the external sort: each bucket is sorted in memory and appended to `col.npy` and `rowptr.npy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gistgnn.graphs.conversion.buckets import KEY, Buckets, Keys, append, bucket_path, distinct, read_keys
from gistgnn.graphs.on_disk.making import Making
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.graphs.on_disk.npy import ArrayWriter

_PASS = "sort"
_WAYS = 6  # bits: the files that a bucket is cut into where it does not fit in memory
NARROW = 2**31
"""Nodes up to which sources are int32."""


def sort_buckets(buckets: Buckets, work: Making, most: int, seen: Callable[[float], None]) -> dict[str, StoredArray]:
    """Sort every bucket, and return the arrays ``rowptr`` and ``col``.

    A finished bucket is recorded and its file removed, so that a killed pass goes on with the next one.

    Args:
        buckets: how the keys were cut.
        work: the folder.
        most: keys that may be sorted at once. A larger bucket is cut into smaller ones first.
        seen: is called with the share of the buckets that are sorted.

    Raises:
        OSError: the files cannot be read or written.
    """
    first, edges = work.reached(_PASS) or (0, 0)
    dtype = np.int32 if buckets.nodes <= NARROW else np.int64
    with ExitStack() as stack:
        col = stack.enter_context(ArrayWriter(work.folder / "col.npy", dtype, rows=edges))
        before = 1 + buckets.targets(first - 1).stop if first else 0
        rowptr = stack.enter_context(ArrayWriter(work.folder / "rowptr.npy", np.int64, rows=before))
        if not first:
            rowptr.append(np.zeros(1, np.int64))
        for bucket in range(first, len(buckets)):
            begin = col.rows
            degrees = _sorted(bucket, buckets, work.folder, most, col)
            np.cumsum(degrees, out=degrees)
            degrees += begin
            rowptr.append(degrees)
            for file in (col, rowptr):
                file.sync()
            work.record(_PASS, [bucket + 1, col.rows])
            bucket_path(work.folder, bucket).unlink(missing_ok=True)
            seen((bucket + 1) / len(buckets))
        return {"rowptr": rowptr.finish(), "col": col.finish()}


def _sorted(bucket: int, buckets: Buckets, folder: Path, most: int, col: ArrayWriter) -> npt.NDArray[np.int64]:
    """Append the sources of a bucket's edges, sorted, and return the number of edges into each of its targets."""
    targets = buckets.targets(bucket)
    degrees = np.zeros(len(targets), np.int64)
    mask = np.uint64((1 << buckets.bits) - 1)
    bounds = np.arange(targets.start, targets.stop + 1, dtype=np.uint64) << np.uint64(buckets.bits)
    for keys in sorted_pieces(bucket_path(folder, bucket), buckets.shift, most):
        ends = np.searchsorted(keys, bounds[1:])
        degrees += np.diff(ends, prepend=0)
        col.append((keys & mask).astype(col.dtype))
    return degrees


def sorted_pieces(path: Path, shift: int, most: int) -> Iterator[Keys]:
    """Yield the distinct keys of a file in ascending order, in pieces of at most ``most``.

    A larger file is cut into up to 2^6 files by its keys' next bits, again and again. The file itself stays.

    Args:
        path: keys whose bits above ``shift`` are equal.
        shift: see ``path``.
        most: keys that may be in memory.
    """
    if not path.exists():
        return
    if path.stat().st_size <= KEY * most:
        yield distinct(np.fromfile(path, np.uint64))
        return
    ways = min(_WAYS, shift)
    if not ways:  # one key, again and again
        yield next(read_keys(path, 1))
        return
    below = np.uint64((1 << ways) - 1)

    def part(number: int) -> Path:
        return path.with_name(f"{path.stem}-{number & int(below)}.keys")

    for number in range(1 << ways):  # of a pass that was killed
        part(number).unlink(missing_ok=True)
    for keys in read_keys(path, most):
        append(keys, shift - ways, part)
    for number in range(1 << ways):
        yield from sorted_pieces(part(number), shift - ways, most)
        part(number).unlink(missing_ok=True)
