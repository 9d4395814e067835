"""The user's cache: graphs that are slow to parse or to draw, as graph folders."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.folder import load_folder, verify
from gistgnn.graphs.folder_writing import whole_folder, write_graph
from gistgnn.graphs.graph import Graph

# Part of every fingerprint: raise it when a reader makes another graph from the same raw files.
_VERSION = 1


def cache_folder() -> Path | None:
    """Return ``$GISTGNN_CACHE`` or ``~/.cache/gistgnn``; None if the user has no home, as in some containers."""
    try:
        return Path(os.environ.get("GISTGNN_CACHE") or Path.home() / ".cache" / "gistgnn").expanduser()
    except RuntimeError:
        return None


def cached(name: str, key: str, build: Callable[[], Graph]) -> Graph:
    """Return the graph that ``build`` makes, from the cache if it was made before with this name and key.

    The key is everything that decides the graph, such as the `fingerprint` of raw files. A damaged folder in the cache
    is replaced. If the cache cannot be written, the graph is built every time.
    """
    if (folder := cache_folder()) is None:
        return build()
    digest = hashlib.sha256(f"folder {key}".encode()).hexdigest()[:16]
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
