"""The user's cache folder, and in it the graphs whose raw files are slow to parse, as `.npz` files."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.files import load_file, save_file
from gistgnn.graphs.graph import Graph

# Part of the key: raise it when a reader makes another graph of the same raw files.
_VERSION = 1


def cache_folder() -> Path | None:
    """``$GISTGNN_CACHE``, or else ``~/.cache/gistgnn``; None for a user without a home, as in some containers."""
    try:
        return Path(os.environ.get("GISTGNN_CACHE") or Path.home() / ".cache" / "gistgnn").expanduser()
    except RuntimeError:
        return None


def cached(name: str, sources: Sequence[Path], build: Callable[[], Graph]) -> Graph:
    """The graph that ``build`` makes, from the cache where the raw files are those of last time.

    A damaged file in the cache (see `cache_folder`) is built again; where the cache cannot be written, the graph is
    built every time.

    Args:
        name: the name of the graph.
        sources: the raw files; their paths, sizes and times of change are the key.
        build: parses them.

    Raises:
        InputError: whatever ``build`` raises.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    path = folder / f"{name}-{_key(sources)}.npz"
    with contextlib.suppress(InputError):  # not there, or damaged
        return replace(load_file(path), name=name)
    graph = build()
    with contextlib.suppress(OSError, InputError):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(graph, path)
    return graph


def _key(sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(f"{_VERSION}".encode())
    for source in sources:
        status = source.stat()
        digest.update(f"\0{source.resolve()}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
