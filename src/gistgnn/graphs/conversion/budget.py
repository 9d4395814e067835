"""The memory and the disk that a conversion takes."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.buckets import KEY, Buckets
from gistgnn.graphs.conversion.source import Source
from gistgnn.utils.formats import size

DEFAULT = 2 * 2**30
"""Bytes of memory that a conversion may take unless the user says otherwise."""

_LEAST = 2**26  # bytes beside what the process takes already
_LARGEST_BLOCK = 2**25  # bytes of features; larger blocks are no faster
_MOST_EDGES, _MOST_KEYS = 2**21, 2**24  # of a block, and of a bucket: likewise
_BLOCK_EDGE, _SORTED_KEY, _TARGET = 96, 48, 40  # bytes in memory for an edge or a target, with copies
_COPIES = 12  # of a block of features, as float32 and in other types
_MOST_BUCKETS = 1024


@dataclass(frozen=True)
class Budget:
    """What fits into the memory of a conversion.

    Attributes:
        room: bytes beside those that the process takes already.
    """

    room: int

    @classmethod
    def within(cls, memory: int, held: int, nodes: int = 0) -> Budget:
        """Return what is left of ``memory`` bytes for a graph of N ``nodes`` in a process that takes ``held`` already.

        Raises:
            InputError: too little.
        """
        least = _LEAST + 2 * nodes
        if memory < held + least:
            raise InputError(
                f"memory is {size(memory)}; expected at least {size(held + least)}: the process takes {size(held)} "
                "already"
            )
        return cls(memory - held - nodes)

    @staticmethod
    def held() -> int:
        """Return the bytes that the process takes."""
        return int(psutil.Process().memory_info().rss)

    def node_rows(self, features: int) -> int:
        """Return how many nodes are read at once."""
        return max(min(self.room // _COPIES, _LARGEST_BLOCK) // (4 * features + 16), 1)

    @property
    def edge_rows(self) -> int:
        """Return how many edges are read at once."""
        return max(min(self.room // (2 * _BLOCK_EDGE), _MOST_EDGES), 1)

    @property
    def keys(self) -> int:
        """Return how many keys are sorted at once."""
        return max(min(self.room // (2 * _SORTED_KEY), _MOST_KEYS), 1)

    def buckets(self, nodes: int, edges: int) -> Buckets:
        """Return the buckets for about ``edges`` keys."""
        wanted = max(-(-3 * edges // (2 * self.keys)), -(-2 * nodes * _TARGET // self.room), 1)
        return Buckets.of(nodes, min(wanted, _MOST_BUCKETS))


def disk_bytes(source: Source, nodes: int, edges: int, dtype: str) -> int:
    """Return about how many bytes the disk must have while a graph is made: all arrays, and the keys once.

    ``edges`` counts both directions.
    """
    labels = 4 * (source.classes or 2) if source.regression else 8
    arrays = nodes * (source.features * np.dtype(dtype).itemsize + labels + 1 + 8)
    return arrays + edges * (KEY + 4)


def require_disk(target: Path, needed: int, held: int, advice: str = ", or a smaller --dtype") -> None:
    """Refuse a conversion for which there is no room, before it starts.

    Args:
        target: the folder that is made.
        needed: see `disk_bytes`.
        held: bytes of it that are written already.
        advice: what else helps, if nothing is written yet.

    Raises:
        InputError: the disk has less.
    """
    there = next(path for path in (target.absolute(), *target.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if needed - held > free:
        raise InputError(
            f"{target}: the graph takes about {size(needed)} of the disk while it is made, {size(free)} are free: make "
            f"room, choose another disk{'' if held else advice}"
        )


def written_bytes(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
