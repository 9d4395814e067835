"""Opening a graph folder. Its arrays are mapped: what is read of them is what is used of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.archive import check_room
from gistgnn.graphs.by_target import GraphByTarget
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.edge_data import EDGE_DATA
from gistgnn.graphs.on_disk.manifest import ADVICE, Manifest
from gistgnn.graphs.on_disk.npy import as_tensor, map_array
from gistgnn.graphs.on_disk.reading import ArrayFile
from gistgnn.graphs.on_disk.values import PIECE, node_problem
from gistgnn.utils.formats import size

Array = npt.NDArray[Any]

SPLITS = {"train": 1, "val": 2, "test": 3}
"""The numbers in `split.npy`; 0 is in no split."""

_ROWS = 2**16  # rows that are converted to float32 at once

log = logging.getLogger(__name__)


def open_folder(folder: Path) -> tuple[Manifest, dict[str, Array]]:
    """Read the manifest of a graph folder, compare the headers and sizes of all files with it, and map the arrays.

    The values are not read; `gistgnn.graphs.on_disk.verify` compares them with their checksums.

    Raises:
        InputError: there is no manifest, it is damaged, or a file is missing, cut short or another array.
    """
    manifest = Manifest.read(folder)
    return manifest, {name: map_array(folder / f"{name}.npy", array) for name, array in manifest.arrays.items()}


def load_folder(folder: Path) -> GraphByTarget:
    """Return the graph in a folder. Its tensors are mapped from the files; of a folder of clusters, x is read in parts.

    What is written into a tensor stays in this process. Write into none that is larger than the memory: the system maps
    it for reading alone, and ends a process that writes.

    Features in float16 or int8 are converted to float32 in memory as a whole, and a note says so.

    Raises:
        InputError: as `open_folder`; `rowptr`, `y` or `split` has a wrong value; or features that have to be converted
            do not fit in memory.
    """
    manifest, arrays = open_folder(folder)
    _check_nodes(folder, manifest)
    rowptr, split = arrays["rowptr"], arrays["split"]
    values: dict[str, Any] = {
        **{name: torch.from_numpy(split == number) for name, number in SPLITS.items()},
        **{name: as_tensor(arrays[name]) for name in EDGE_DATA if name in arrays},
        "edge_index": CSR(as_tensor(rowptr), as_tensor(arrays["col"])),
        "y": as_tensor(arrays["y"]),
        "num_classes": manifest.classes,
        "name": manifest.name,
        "regression": manifest.task == "regression",
    }
    if "cluster_ptr" in arrays:
        return _clustered(folder, manifest, arrays, values)
    return GraphByTarget(_features(manifest, arrays), **values)


def _clustered(folder: Path, manifest: Manifest, arrays: dict[str, Array], values: dict[str, Any]) -> GraphByTarget:
    """Return a graph whose nodes are in the order of clusters."""
    ptr = torch.from_numpy(np.array(arrays["cluster_ptr"]))
    if ptr[0] != 0 or ptr[-1] != manifest.nodes or bool((ptr.diff() < 1).any()):
        path = folder / "cluster_ptr.npy"
        raise InputError(f"{path} is damaged: it does not rise from 0 to {manifest.nodes}; {ADVICE}")
    x = as_tensor(arrays["x"]) if arrays["x"].dtype != np.int8 else _features(manifest, arrays)
    return GraphByTarget(x, **values, folder=folder, cluster_ptr=ptr)


def _check_nodes(folder: Path, manifest: Manifest) -> None:
    """Check what is read of nodes in any order: it is small beside edges and features, and read, not mapped."""
    one_class = manifest.task == "single-label"  # y is large where it holds several labels, and needs no check
    rowptr, split, y = (
        ArrayFile.of(folder, manifest, name) for name in ("rowptr", "split", "y" if one_class else "split")
    )
    for first in range(0, manifest.nodes, PIECE):
        last = min(first + PIECE, manifest.nodes)
        of_nodes = (file.rows([(first, last)]) for file in (y, split))
        if problem := node_problem(manifest, first, rowptr.rows([(first, last + 1)]), *of_nodes):
            raise InputError(f"{folder / problem[0]}.npy is damaged: it {problem[1]}; {ADVICE}")


def to_float32(rows: Array, scale: Array | None) -> npt.NDArray[np.float32]:
    """Return features as float32; ``scale`` is that of int8."""
    values = rows.astype(np.float32)
    if scale is not None:
        values *= scale
    return values


def _features(manifest: Manifest, arrays: dict[str, Array]) -> Tensor:
    stored = arrays["x"]
    if stored.dtype == np.float32:
        return as_tensor(stored)
    needed = 4 * stored.size
    check_room(needed, f"x of {manifest.name} as float32")
    log.info(f"x of {manifest.name} is {stored.dtype}: as float32 it takes {size(needed)} of memory")
    x = np.empty(stored.shape, np.float32)
    for start in range(0, len(x), _ROWS):
        x[start : start + _ROWS] = to_float32(stored[start : start + _ROWS], arrays.get("x_scale"))
    return torch.from_numpy(x)
