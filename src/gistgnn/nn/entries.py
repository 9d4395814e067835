"""The entries of a matrix whose columns and values are in files: which of them are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Ranges = Sequence[tuple[int, int]]
"""Some entries: the first one of each range, and the one after the last."""

_GAP = 2**9  # entries: reading them is faster than another call

Nodes = slice | Tensor
"""Some rows: consecutive ones, or the numbers of some in ascending order."""


class Entries(Protocol):
    """The values of all entries of a pattern, in a file."""

    def read(self, ranges: Ranges) -> Tensor:
        """Return those of some ranges of entries, one after another: [n]."""

    def mapped(self) -> Tensor:
        """Return all of them, mapped: [nnz]."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Some entries of a file: ranges of them that are read, and the places of the wanted ones among these."""

    ranges: Ranges
    places: Tensor | None = None  # None: all

    @classmethod
    def between(cls, begin: Tensor, end: Tensor) -> Selection:
        """Return the entries of some rows, ascending, which begin and end there. What lies between them is read too."""
        if not len(begin):
            return cls([(0, 0)])
        last = torch.cat([begin[1:] - end[:-1] > _GAP, torch.ones(1, dtype=torch.bool)])  # of a range that is read
        first = torch.cat([last[-1:], last[:-1]])
        ranges = torch.stack([begin[first], end[last]])
        read, degrees = ranges[1] - ranges[0], end - begin
        moved = (ranges[0] - (read.cumsum(0) - read))[first.cumsum(0) - 1]  # back, of the range that a row is in
        places = (begin - moved - (degrees.cumsum(0) - degrees)).repeat_interleave(degrees)
        places += torch.arange(len(places))
        return cls(list(zip(*ranges.tolist(), strict=True)), places)

    def of(self, entries: Entries) -> Tensor:
        """Read these entries: [n]."""
        read = entries.read(self.ranges)
        return read if self.places is None else read.index_select(0, self.places)


class MappedEntries:
    """Values of entries that are mapped already: [nnz]."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def read(self, ranges: Ranges) -> Tensor:
        """Return those of some ranges of entries: [n]."""
        return torch.cat([self._values[begin:end] for begin, end in ranges])

    def mapped(self) -> Tensor:
        """Return all of them: [nnz]."""
        return self._values
