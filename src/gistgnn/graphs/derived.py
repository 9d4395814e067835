"""Arrays computed from a graph, kept beside it in its folder: scaled features, Ā x."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.io.whole_files import replacing


def mapped(path: Path) -> Tensor:
    """Map a `.npy` file: its values are read when they are used. Nothing may be written to the tensor.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no whole `.npy` file.
    """
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def derived(
    folder: Path | None, name: str, shape: tuple[int, int], fill: Callable[[npt.NDArray[np.float32]], None]
) -> Tensor:
    """Return the array ``folder/name.npy``, mapped. If it is missing, it is computed first, whole or not at all.

    Args:
        folder: of the graph. None, or a folder that cannot be written: a temporary file, gone with the process.
        name: it must follow from everything that decides the values.
        shape: of the array, float32.
        fill: called with the empty array; writes all of it.

    Raises:
        InputError: the disk is full.
    """
    if folder is not None:
        try:
            found = mapped(folder / f"{name}.npy")
        except (OSError, ValueError):
            pass  # missing or cut short
        else:
            if found.shape == shape and found.dtype == torch.float32:
                return found
    if folder is None or not os.access(folder, os.W_OK):
        with tempfile.TemporaryDirectory(prefix="gistgnn-", ignore_cleanup_errors=True) as temporary:
            return _written(Path(temporary) / f"{name}.npy", shape, fill)  # a mapped file stays until it is unmapped
    return _written(folder / f"{name}.npy", shape, fill)


def _written(path: Path, shape: tuple[int, int], fill: Callable[[npt.NDArray[np.float32]], None]) -> Tensor:
    with replacing(path) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here; in the mapped file it would end the process
            with temporary.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        fill(array)
        array.flush()
    return mapped(path)
