"""Reading every byte of a graph folder: checksums, and values that no reader may trust."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from gistgnn.errors import InputError, reason
from gistgnn.graphs.edge_data import EDGE_DATA
from gistgnn.graphs.on_disk.manifest import ADVICE, BLOCK, Manifest, StoredArray
from gistgnn.graphs.on_disk.npy import read_pieces, values_begin
from gistgnn.graphs.on_disk.opening import open_folder
from gistgnn.graphs.on_disk.values import PIECE, cluster_problem, node_problem

Array = npt.NDArray[Any]

_MADE_WRONG = "it has the right checksum, so it was made wrong"


def verify(folder: Path, seen: Callable[[float], None] = lambda share: None) -> int:
    """Compare every array of a graph folder with its checksums, and check that the values are those of a graph.

    Args:
        folder: of a graph.
        seen: is called with the share of the bytes that has been read.

    Returns:
        The bytes of the arrays, and of the products with the features that are kept beside them.

    Raises:
        InputError: an array is damaged; the message says where. Or its values are wrong.
    """
    manifest, arrays = open_folder(folder)
    done = 0
    for name, array in manifest.arrays.items():
        for size in _compared(folder / f"{name}.npy", array):
            done += size
            seen(done / manifest.nbytes)
    for name, problem in _problems(manifest, arrays):
        raise InputError(f"{folder / name}.npy: {problem}; {_MADE_WRONG}: {ADVICE}")
    return done


def _compared(path: Path, array: StoredArray) -> Iterator[int]:
    """Yield the bytes of every block that is what it was."""
    begin = values_begin(path, array)
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(begin)
            for number, said in enumerate(array.checksums):
                wanted = min(BLOCK, array.nbytes - number * BLOCK)
                hashed = xxhash.xxh3_64()
                for piece in read_pieces(file, wanted):
                    hashed.update(piece)
                if hashed.hexdigest() != said:
                    first = begin + number * BLOCK
                    raise InputError(
                        f"{path} is damaged: the checksum of its bytes {first:,} to {first + wanted - 1:,} does not "
                        f"fit; {ADVICE}"
                    )
                yield wanted
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or reason(error)}); {ADVICE}") from error


def _problems(manifest: Manifest, arrays: dict[str, Array]) -> Iterator[tuple[str, str]]:
    """Yield the name of every array with wrong values, and what is wrong."""
    rowptr, y, split = (arrays[name] for name in ("rowptr", "y", "split"))
    for first in range(0, manifest.nodes, PIECE):
        nodes = slice(first, first + PIECE)
        if problem := node_problem(manifest, first, rowptr[first : first + PIECE + 1], y[nodes], split[nodes]):
            yield problem
    if wrong := _sources(manifest, arrays):
        yield "col", wrong
    if "node" in arrays and (problem := cluster_problem(arrays["cluster_ptr"], arrays["node"])):
        yield problem
    if any(not np.isfinite(piece).all() for piece in _pieces(arrays["x"])):
        yield "x", "holds NaN or infinity"


def _sources(manifest: Manifest, arrays: dict[str, Array]) -> str | None:
    """Return what is wrong with `col`."""
    col, rowptr = arrays["col"], arrays["rowptr"]
    least = 0 if any(name in arrays for name in EDGE_DATA) else 1  # edge data may be of repeated edges
    for begin in range(0, len(col), PIECE):
        piece = col[begin : begin + PIECE + 1]
        if piece.min() < 0 or piece.max() >= manifest.nodes:
            return f"holds a node outside of 0 to {manifest.nodes - 1}"
        falls = begin + 1 + np.flatnonzero(np.diff(piece) < least)  # only where the edges of a node begin
        if (rowptr[np.searchsorted(rowptr, falls)] != falls).any():
            return "is not ascending within the edges of a node"
    return None


def _pieces(array: Array) -> Iterator[Array]:
    rows = max(PIECE // max(array[:1].size, 1), 1)
    return (array[start : start + rows] for start in range(0, len(array), rows))
