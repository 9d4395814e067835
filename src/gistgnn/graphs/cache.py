"""The user's cache folder, and in it the graphs that are slow to parse or to draw, as `.npz` files."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.graph_files import load_file, save_file

# Part of every fingerprint: raise it when a reader makes another graph of the same raw files.
_VERSION = 1


def cache_folder() -> Path | None:
    """``$GISTGNN_CACHE``, or else ``~/.cache/gistgnn``; None for a user without a home, as in some containers."""
    try:
        return Path(os.environ.get("GISTGNN_CACHE") or Path.home() / ".cache" / "gistgnn").expanduser()
    except RuntimeError:
        return None


def cached(name: str, key: str, build: Callable[[], Graph]) -> Graph:
    """The graph that ``build`` makes, from the cache where it was made before under this name and key.

    A damaged file in the cache (see `cache_folder`) is built again; where the cache cannot be written, the graph is
    built every time.

    Args:
        name: the name of the graph.
        key: whatever the graph follows from, such as the `fingerprint` of raw files.
        build: parses or draws it.

    Raises:
        InputError: whatever ``build`` raises.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    path = folder / f"{name.replace(':', '-')}-{digest}.npz"  # no colons in names of files on Windows
    with contextlib.suppress(InputError):  # not there, or damaged
        return replace(load_file(path), name=name)
    graph = build()
    with contextlib.suppress(OSError, InputError):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(graph, path)
    return graph


def fingerprint(sources: Sequence[Path]) -> str:
    """A key for raw files: their paths, sizes and times of change."""
    states = ((source.resolve(), source.stat()) for source in sources)
    return "\0".join([f"{_VERSION}", *(f"{path}\0{state.st_size}\0{state.st_mtime_ns}" for path, state in states)])
