"""What is computed once: whole graphs in the user's cache, and arrays beside a graph in its folder, such as Ā x."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.folder import load_folder, verify, whole_folder, write_graph
from gistgnn.graphs.graph import Graph
from gistgnn.storage.folder_lock import waiting_lock
from gistgnn.storage.tensors import map_array, temporary_tensors
from gistgnn.storage.whole_files import replacing

_VERSION = 1  # part of every fingerprint: raise it when a reader makes another graph from the same raw files


def cache_folder() -> Path | None:
    """Return ``$GISTGNN_CACHE`` or ``~/.cache/gistgnn``; None if the user has no home, as in some containers."""
    try:
        return Path(os.environ.get("GISTGNN_CACHE") or Path.home() / ".cache" / "gistgnn").expanduser()
    except RuntimeError:
        return None


def cached(name: str, key: str, build: Callable[[], Graph]) -> Graph:
    """Return the graph of a name and a key from the cache; ``build`` makes it if it is missing or damaged."""
    if (folder := cache_folder()) is None:
        return build()
    digest = hashlib.sha256(f"folder 3 {key}".encode()).hexdigest()[:16]
    path = folder / f"{name.replace(':', '-')}-{digest}"  # Windows allows no colons in file names
    with contextlib.suppress(InputError, OSError):  # damaged, or missing
        verify(path)
        return replace(load_folder(path, in_memory=True), name=name)
    graph = build()
    with contextlib.suppress(OSError, InputError):
        shutil.rmtree(path, ignore_errors=True)
        with whole_folder(path) as made:
            write_graph(graph, made)
    return graph


def fingerprint(sources: Sequence[Path]) -> str:
    """Return a key for raw files: their paths, sizes and modification times."""
    states = ((source.resolve(), source.stat()) for source in sources)
    return "\0".join([f"{_VERSION}", *(f"{path}\0{state.st_size}\0{state.st_mtime_ns}" for path, state in states)])


def derived(
    folder: Path | None, name: str, shape: tuple[int, int], fill: Callable[[npt.NDArray[np.float32]], None]
) -> Tensor:
    """Return the mapped float32 array `folder/name.npy`, written by `fill` if it is missing, whole or not at all."""
    # Its name must follow from all that decides the values: it has no digest. Where the folder is None or cannot be
    # written it is a temporary file. A full disk is an InputError.
    path = (folder or Path()) / f"{name}.npy"
    if folder is not None and (found := _found(path, shape)) is not None:
        return found
    if folder is None or not os.access(folder, os.W_OK):
        array = temporary_tensors({name: (torch.Size(shape), torch.float32)})[name]
        fill(array.numpy())
        return array
    with waiting_lock(folder / ".gistgnn-derived.lock"):  # another process may compute the same
        if (found := _found(path, shape)) is not None:
            return found
        with replacing(path) as unfinished:
            values = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
            if hasattr(os, "posix_fallocate"):  # writing to a mapped page ends the process when the disk is full
                with unfinished.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, unfinished.stat().st_size)
            fill(values)
            values.flush()
        return map_array(path)


def _found(path: Path, shape: tuple[int, int]) -> Tensor | None:
    """Return an array that is there; None: it is missing, cut short or another array."""
    with contextlib.suppress(Exception):  # NumPy's parser may raise anything on a file that was cut short
        found = map_array(path)
        if found.shape == shape and found.dtype == torch.float32:
            return found
    return None
