"""Arrays computed from a graph, kept beside it in its folder: scaled features, Ā x."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from torch import Tensor

from gistgnn.storage.tensors import temporary_tensors
from gistgnn.storage.whole_files import replacing


def mapped(path: Path) -> Tensor:
    """Map a `.npy` file: its values are read when they are used. Nothing may be written to the tensor."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def read_ahead(array: Tensor, ranges: Iterable[tuple[int, int]]) -> None:
    """Ask the system to read some rows of a mapped array, together and with nothing around them.

    Without it a page fault reads as much as the disk's read-ahead: 8 MB on some disks, for rows of a few hundred bytes.
    """
    if sys.platform != "linux":
        return
    libc, begin = ctypes.CDLL(None), array.data_ptr()
    row = array.stride(0) * array.element_size()
    for start, stop in ranges:
        first = (begin + start * row) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(begin + stop * row - first), mmap.MADV_WILLNEED)


def derived(
    folder: Path | None, name: str, shape: tuple[int, int], fill: Callable[[npt.NDArray[np.float32]], None]
) -> Tensor:
    """Return the array ``folder/name.npy``, mapped. If it is missing, it is computed first, whole or not at all.

    Args:
        folder: of the graph. None, or a folder that cannot be written: a temporary file, gone with the process.
        name: it must follow from everything that decides the values: the file has no digest.
        shape: of the array, float32.
        fill: called with the empty array; writes all of it.

    Raises:
        InputError: the disk is full.
    """
    path = (folder or Path()) / f"{name}.npy"
    if folder is not None and (found := _found(path, shape)) is not None:
        return found
    if folder is None or not os.access(folder, os.W_OK):
        array = temporary_tensors({name: (torch.Size(shape), torch.float32)})[name]
        fill(array.numpy())
        return array
    with FileLock(folder / ".gistgnn-derived.lock"):  # another process may compute the same
        if (found := _found(path, shape)) is not None:
            return found
        with replacing(path) as unfinished:
            values = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
            if hasattr(os, "posix_fallocate"):  # writing to a mapped page ends the process when the disk is full
                with unfinished.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, unfinished.stat().st_size)
            fill(values)
            values.flush()
        return mapped(path)


def _found(path: Path, shape: tuple[int, int]) -> Tensor | None:
    """Return an array that is there; None: it is missing, cut short or another array."""
    with contextlib.suppress(Exception):  # NumPy's parser may raise anything on a file that was cut short
        found = mapped(path)
        if found.shape == shape and found.dtype == torch.float32:
            return found
    return None
