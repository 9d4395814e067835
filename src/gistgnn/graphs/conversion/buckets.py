"""The first pass of the external sort: edges are written to buckets, each a range of targets.

An edge is one key of 64 bits: the target's number above the source's. So sorting keys sorts edges by (target, source).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.source import EdgeBlock, Source

Keys = npt.NDArray[np.uint64]

MOST_NODES = 2**32 - 1  # two numbers of nodes fit into a key
KEY = 8
"""Bytes of a key."""


@dataclass(frozen=True)
class Buckets:
    """How the keys of a graph are cut into buckets.

    Args:
        nodes: N.
        width: each bucket has 2^width consecutive targets.
    """

    nodes: int
    width: int

    @classmethod
    def of(cls, nodes: int, wanted: int) -> Buckets:
        """Return at most about ``wanted`` buckets, at least half of them."""
        return cls(nodes, max((-(-nodes // max(wanted, 1)) - 1).bit_length(), 0))

    @property
    def bits(self) -> int:
        """Bits of a node's number."""
        return (self.nodes - 1).bit_length()

    @property
    def shift(self) -> int:
        """A key's bits below the number of its bucket."""
        return self.bits + self.width

    def __len__(self) -> int:
        return ((self.nodes - 1) >> self.width) + 1

    def targets(self, bucket: int) -> range:
        """Return the targets of a bucket."""
        return range(bucket << self.width, min((bucket + 1) << self.width, self.nodes))


def bucket_path(folder: Path, bucket: int) -> Path:
    """Return the file of a bucket."""
    return folder / f"edges-{bucket}.keys"


def scatter(
    source: Source, buckets: Buckets, folder: Path, undirected: bool, rows: int, seen: Callable[[int], None]
) -> int:
    """Write all edges of a source to the files of their buckets, and return how many were given.

    Args:
        source: the graph.
        buckets: how they are cut.
        folder: for the files; those of a pass that was killed are replaced.
        undirected: add the reverse of every edge.
        rows: edges of a block.
        seen: is called with the number of edges that were read.

    Raises:
        InputError: an edge has a node that does not exist, or there are no edges.
        OSError: the files cannot be written.
    """
    for path in folder.glob("*.keys"):
        path.unlink()
    given = 0
    for block in source.edge_blocks(rows):
        keys = _keys(block, buckets, undirected)
        append(keys, buckets.shift, lambda bucket: bucket_path(folder, bucket))
        given += len(block.source)
        seen(given)
    if not given:
        raise InputError("there are no edges (edge_index has shape [2, 0]); expected at least one")
    return given


def append(keys: Keys, shift: int, path_of: Callable[[int], Path]) -> None:
    """Append keys to files, by their bits above ``shift``; repeated ones are dropped.

    Raises:
        OSError: a file cannot be written.
    """
    keys = distinct(keys)
    number = keys >> np.uint64(shift)
    cuts = np.flatnonzero(number[1:] != number[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(keys)]
    for begin, end in pairwise(bounds):
        with path_of(int(number[begin])).open("ab") as file:
            file.write(keys[begin:end].data)


def distinct(keys: Keys) -> Keys:
    """Sort keys in place, and return them without repeated ones."""
    keys.sort()
    keep = np.empty(len(keys), bool)
    keep[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=keep[1:])
    return keys if keep.all() else keys[keep]


def read_keys(path: Path, rows: int) -> Iterator[Keys]:
    """Yield the keys in a file, at most ``rows`` at once."""
    with path.open("rb") as file:
        while len(keys := np.fromfile(file, np.uint64, rows)):
            yield keys


def _keys(block: EdgeBlock, buckets: Buckets, undirected: bool) -> Keys:
    ends = [
        _checked(values, column, block, buckets.nodes) for column, values in enumerate((block.source, block.target))
    ]
    bits = np.uint64(buckets.bits)
    if not undirected:
        return (ends[1] << bits) | ends[0]
    return np.concatenate([(ends[1] << bits) | ends[0], (ends[0] << bits) | ends[1]])


def _checked(values: npt.NDArray[np.integer], column: int, block: EdgeBlock, nodes: int) -> Keys:
    if len(values) and (values.min() < 0 or values.max() >= nodes):
        row = int(((values < 0) | (values >= nodes)).argmax())
        raise InputError(
            f"{block.called(row, column)} is {values[row]}; expected node numbers from 0 to {nodes - 1} "
            f"(there are {nodes} nodes)"
        )
    return values.astype(np.uint64)
