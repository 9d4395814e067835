"""Which rows of a tensor in a file are read together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gistgnn.theta.disk.row_checksums import block_rows, row_bytes
from gistgnn.theta.model_spec import TensorSpec

READ = 2**22  # bytes at a time; the C library reuses memory of this size
_GAP = 2**16  # bytes between two wanted blocks that are read rather than skipped


@dataclass(frozen=True)
class Batch:
    """Rows of a cut that are read together, in whole blocks, because a block has one checksum.

    Attributes:
        first: the place of the first row among all rows of the cut.
        spans: first and last of the tensor's rows that are read, some of which the cut may not have.
        local: the places of the cut's rows among the rows that are read.
    """

    first: int
    spans: list[tuple[int, int]]
    local: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def size(self) -> int:
        """The number of rows that are read."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def is_dense(self) -> bool:
        """Whether the cut has all rows that are read."""
        return self.size == len(self.local)


def row_batches(spec: TensorSpec, positions: Tensor | None) -> Iterator[Batch]:
    """Yield the batches in which rows are read: the rows at some positions, in order; None: all rows."""
    rows, per = spec.shape[0], block_rows(spec)
    block_bytes = max(per * row_bytes(spec), 1)
    step = max(READ // block_bytes, 1)  # blocks
    if positions is None:
        for start in range(0, rows, step * per):
            stop = min(start + step * per, rows)
            yield Batch(start, [(start, stop)], np.arange(stop - start))
        return
    wanted = positions.numpy()
    owners = wanted // per  # the block of every row
    blocks = owners[np.flatnonzero(np.diff(owners, prepend=-1))]
    apart = np.diff(blocks) > max(_GAP // block_bytes, 1)
    places = np.concatenate([[0], np.where(apart, 1, np.diff(blocks)).cumsum()])  # of each among the blocks read
    first = 0
    while first < len(blocks):
        end = max(int(np.searchsorted(places, places[first] + step)), first + 1)
        cuts = first + 1 + np.flatnonzero(apart[first : end - 1])
        starts, stops = blocks[[first, *cuts]] * per, (blocks[[*(cuts - 1), end - 1]] + 1) * per
        a, b = np.searchsorted(owners, (blocks[first], blocks[end - 1] + 1))
        own = places[np.searchsorted(blocks, owners[a:b])] - places[first]
        spans = list(zip(starts.tolist(), np.minimum(stops, rows).tolist(), strict=True))
        yield Batch(int(a), spans, own * per + wanted[a:b] % per)
        first = end
