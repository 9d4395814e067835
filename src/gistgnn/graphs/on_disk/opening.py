"""Opening a graph folder. Its arrays are mapped: what is read of them is what is used of them."""

from __future__ import annotations

import logging
import warnings
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
from gistgnn.graphs.on_disk.npy import map_array
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
    """Return the graph in a folder. Its tensors are mapped from the files.

    What is written into a tensor stays in this process. Write into none that is larger than the memory: the system maps
    it for reading alone, and ends a process that writes.

    Features in float16 or int8 are converted to float32 in memory as a whole, and a note says so.

    Raises:
        InputError: as `open_folder`; or features that have to be converted do not fit in memory.
    """
    manifest, arrays = open_folder(folder)
    rowptr = arrays["rowptr"]
    if rowptr[0] != 0 or rowptr[-1] != manifest.edges:
        raise InputError(f"{folder / 'rowptr.npy'} is damaged: it does not go from 0 to {manifest.edges}; {ADVICE}")
    split = arrays["split"]
    masks = {name: torch.from_numpy(split == number) for name, number in SPLITS.items()}
    return GraphByTarget(
        _features(manifest, arrays),
        CSR(_tensor(rowptr), _tensor(arrays["col"])),
        _tensor(arrays["y"]),
        **masks,
        num_classes=manifest.classes,
        name=manifest.name,
        regression=manifest.task == "regression",
        **{name: _tensor(arrays[name]) for name in EDGE_DATA if name in arrays},
    )


def to_float32(rows: Array, scale: Array | None) -> npt.NDArray[np.float32]:
    """Return features as float32; ``scale`` is that of int8."""
    values = rows.astype(np.float32)
    if scale is not None:
        values *= scale
    return values


def _features(manifest: Manifest, arrays: dict[str, Array]) -> Tensor:
    stored = arrays["x"]
    if stored.dtype == np.float32:
        return _tensor(stored)
    needed = 4 * stored.size
    check_room(needed, f"x of {manifest.name} as float32")
    log.info(f"x of {manifest.name} is {stored.dtype}: as float32 it takes {size(needed)} of memory")
    x = np.empty(stored.shape, np.float32)
    for start in range(0, len(x), _ROWS):
        x[start : start + _ROWS] = to_float32(stored[start : start + _ROWS], arrays.get("x_scale"))
    return torch.from_numpy(x)


def _tensor(array: Array) -> Tensor:
    with warnings.catch_warnings():  # arrays larger than memory are mapped read-only, of which torch warns
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
