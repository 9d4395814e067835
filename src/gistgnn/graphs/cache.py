"""The user's cache folder. It keeps graphs that are slow to parse or to draw, as ``.npz`` files."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.graph_files import load_file, save_file

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

    A damaged file in the cache is replaced. If the cache cannot be written, the graph is built every time. ``key`` is
    everything that determines the graph, such as the `fingerprint` of raw files.

    Raises:
        InputError: from ``build``.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    path = folder / f"{name.replace(':', '-')}-{digest}.npz"  # Windows allows no colons in file names
    with contextlib.suppress(InputError):  # missing or damaged
        return replace(load_file(path), name=name)
    graph = build()
    with contextlib.suppress(OSError, InputError):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(graph, path)
    return graph


def fingerprint(sources: Sequence[Path]) -> str:
    """Return a key for raw files: their paths, sizes and modification times."""
    states = ((source.resolve(), source.stat()) for source in sources)
    return "\0".join([f"{_VERSION}", *(f"{path}\0{state.st_size}\0{state.st_mtime_ns}" for path, state in states)])
