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
from gistgnn.graphs.on_disk.products import kept

Array = npt.NDArray[Any]

_PIECE = 2**20  # rows or edges that are checked at once
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
    for place, array in kept(folder):
        done += sum(_compared(place, array, "remove it, and it is computed again"))
    return done


def _compared(path: Path, array: StoredArray, advice: str = ADVICE) -> Iterator[int]:
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
                        f"fit; {advice}"
                    )
                yield wanted
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or reason(error)}); {advice}") from error


def _problems(manifest: Manifest, arrays: dict[str, Array]) -> Iterator[tuple[str, str]]:
    """Yield the name of every array with wrong values, and what is wrong."""
    rowptr = arrays["rowptr"]
    if rowptr[0] != 0 or rowptr[-1] != manifest.edges or any((np.diff(p) < 0).any() for p in _pieces(rowptr, 1)):
        yield "rowptr", f"does not rise from 0 to {manifest.edges}"
    elif problem := _sources(manifest, arrays):
        yield "col", problem
    if "node" in arrays:
        yield from _cluster_problems(arrays["cluster_ptr"], arrays["node"], manifest.nodes)
    if any(not np.isfinite(piece).all() for piece in _pieces(arrays["x"])):
        yield "x", "holds NaN or infinity"
    pairs = zip(_pieces(arrays["y"]), _pieces(arrays["split"]), strict=True)
    for y, split in pairs:
        if split.max() > 3:
            yield "split", f"holds {split.max()}, expected 0 to 3"
        if manifest.task == "single-label" and (y.min() < -1 or y.max() >= manifest.classes):
            yield "y", f"holds a label outside of -1 to {manifest.classes - 1}"
        if manifest.task == "single-label" and (y[split > 0] < 0).any():
            yield "split", "has an unlabelled node in a split"


def _cluster_problems(ptr: Array, node: Array, nodes: int) -> Iterator[tuple[str, str]]:
    if ptr[0] != 0 or ptr[-1] != nodes or (np.diff(ptr) < 1).any():
        yield "cluster_ptr", f"does not rise strictly from 0 to {nodes}"
        return
    found = np.zeros(nodes, bool)
    for start in range(0, nodes, _PIECE):
        piece = node[start : start + _PIECE + 1]
        if piece.min() < 0 or piece.max() >= nodes:
            yield "node", f"holds a node outside of 0 to {nodes - 1}"
            return
        found[piece] = True
        falls = start + 1 + np.flatnonzero(np.diff(piece) < 1)  # only where a cluster begins
        if (ptr[np.searchsorted(ptr, falls)] != falls).any():
            yield "node", "is not ascending within a cluster"
    if not found.all():
        yield "node", f"lacks node {int(np.argmin(found))}, and has another one twice"


def _sources(manifest: Manifest, arrays: dict[str, Array]) -> str | None:
    """Return what is wrong with `col`."""
    col, rowptr = arrays["col"], arrays["rowptr"]
    least = 0 if any(name in arrays for name in EDGE_DATA) else 1  # edge data may be of repeated edges
    for begin in range(0, len(col), _PIECE):
        piece = col[begin : begin + _PIECE + 1]
        if piece.min() < 0 or piece.max() >= manifest.nodes:
            return f"holds a node outside of 0 to {manifest.nodes - 1}"
        falls = begin + 1 + np.flatnonzero(np.diff(piece) < least)  # only where the edges of a node begin
        if (rowptr[np.searchsorted(rowptr, falls)] != falls).any():
            return "is not ascending within the edges of a node"
    return None


def _pieces(array: Array, overlap: int = 0) -> Iterator[Array]:
    rows = max(_PIECE // max(array[:1].size, 1), 1)
    return (array[start : start + rows + overlap] for start in range(0, len(array), rows))
