"""What is computed once and kept in files.

In the user's cache these are graphs and clusters; in the folder of a graph they are arrays such as
Ā x. All of it may be removed at any time: it is computed again. A file that a process uses is
locked by it, and stays.
"""

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.folder import MANIFEST, load_folder, verify, whole_folder, write_graph
from gistgnn.graphs.graph import Graph
from gistgnn.storage.folder_lock import waiting_lock
from gistgnn.storage.tensors import check_digest, file_digest, map_array, temporary_tensors
from gistgnn.storage.whole_files import replacing, writing
from gistgnn.utils.tensors import digest_of, is_digest, remember_digest

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows, where a file that is mapped cannot be removed
    fcntl = None

KINDS = {
    "x-standardised": "features that are scaled",
    "product": "the product of the edges with the features",
}
"""What is kept in the folder of a graph, by the beginning of the files' names."""

KEPT_OF_A_KIND = 2
"""How many files of a kind are kept: those that were used last.

When one is written, others are removed, unless a process uses them.
"""

CLUSTERS_LIMIT = 2 * 2**30
"""How many bytes clusters may take in the user's cache.

Those that have not been used for longest are removed.
"""

# Part of every fingerprint. Raise it when a reader makes another graph from the same raw files.
_VERSION = 1


def cache_folder() -> Path | None:
    """Return ``$GISTGNN_CACHE`` or ``~/.cache/gistgnn``.

    Returns None if the user has no home, as in some containers.
    """
    try:
        return Path(
            os.environ.get("GISTGNN_CACHE") or Path.home() / ".cache" / "gistgnn"
        ).expanduser()
    except RuntimeError:
        return None


def cached(name: str, key: str, build: Callable[[], Graph]) -> Graph:
    """Return the graph of a name and a key from the cache.

    ``build`` makes it if it is missing or damaged.
    """
    if (folder := cache_folder()) is None:
        return build()
    digest = hashlib.sha256(f"folder 3 {key}".encode()).hexdigest()[:16]
    path = folder / f"{_file_name(name)}-{digest}"
    with contextlib.suppress(InputError, OSError):  # damaged, or missing
        verify(path)
        return replace(load_folder(path, in_memory=True), name=name)
    graph = build()
    with contextlib.suppress(OSError, InputError):
        for old in _cached_graphs(folder):
            # A graph of the same name is of other raw files, or damaged.
            if _without_digest(old) == _file_name(name):
                shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(path, ignore_errors=True)
        with whole_folder(path) as made:
            write_graph(graph, made)
    return graph


def fingerprint(sources: Sequence[Path]) -> str:
    """Return a key for raw files: their paths, sizes and modification times."""
    states = ((source.resolve(), source.stat()) for source in sources)
    return "\0".join(
        [
            f"{_VERSION}",
            *(f"{path}\0{state.st_size}\0{state.st_mtime_ns}" for path, state in states),
        ]
    )


def derived(
    folder: Path | None,
    kind: str,
    facts: Any,
    shape: tuple[int, int],
    fill: Callable[[npt.NDArray[np.float32]], None],
) -> Tensor:
    """Return a mapped float32 array that is computed once and kept in a graph's folder.

    Its file is written whole or not at all. Where the folder is None or cannot be written, the
    array is in a temporary file. When one is written, older ones of its kind are removed; see
    `KEPT_OF_A_KIND`.

    Args:
        folder: the graph's.
        kind: one of `KINDS`, perhaps followed by "-" and a name.
        facts: all that decides the values, as JSON holds it.
        shape: of the array.
        fill: computes the values into an array of zeros.

    Raises:
        InputError: the disk is full.
    """
    if folder is not None and (array := _kept_array(folder, kind, facts, shape)) is not None:
        return array
    if folder is None or not os.access(folder, os.W_OK):
        array = temporary_tensors({kind: (torch.Size(shape), torch.float32)})[kind]
        fill(array.numpy())
        return array
    with waiting_lock(folder / ".gistgnn-derived.lock"):  # another process may compute the same
        if (array := _kept_array(folder, kind, facts, shape)) is not None:
            return array
        without_digest = folder / f"{_name(kind, facts)}.npy"  # of its content, not known yet
        with replacing(without_digest) as unfinished:
            values = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
            # When the disk is full, writing to a mapped page would end the process.
            if hasattr(os, "posix_fallocate"):
                with unfinished.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, unfinished.stat().st_size)
            fill(values)
            values.flush()
        path = folder / f"{_name(kind, facts)}-{file_digest(without_digest)}.npy"
        with writing(path):
            without_digest.rename(path)
        array = _opened(path, shape)
        same_kind = [other for other in derived_files(folder) if _kind_of(other) == kind]
        for old in sorted(same_kind, key=_last_use)[:-KEPT_OF_A_KIND]:
            remove_unused(old)
    return map_array(path) if array is None else array


def derived_files(folder: Path) -> list[Path]:
    """Return the files that `derived` keeps in the folder of a graph."""
    paths = (path for kind in KINDS for path in folder.glob(f"{kind}-*.npy"))
    # Files of the user's have no digest in their names.
    ours = (path for path in paths if _kind_of(path) != path.stem)
    return sorted(path for path in ours if path.is_file() and not path.is_symlink())


def verify_derived(folder: Path) -> None:
    """Read every file that `derived` keeps in a folder, and compare it with its digest.

    The digest is part of the file's name.
    """
    for path in derived_files(folder):
        digest = path.stem.rpartition("-")[2]
        if is_digest(digest):  # names of older versions have shorter ones
            check_digest(path, digest, "remove it: it is computed again")


def remove_unused(path: Path) -> bool:
    """Remove a file that is computed again when it is missed; return False if a process uses it."""
    try:
        with path.open("r+b") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:  # it is locked, or Windows has it open
        return False
    return True


def note_use(path: Path) -> None:
    """Note that a file of a cache is used now.

    Files that have not been used for longest are removed first.
    """
    with contextlib.suppress(OSError):  # it cannot be written, or is gone
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _last_use(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_atime_ns
    return 0


def _name(kind: str, facts: Any) -> str:
    return f"{kind}-{digest_of(facts)[:16]}"


def _kind_of(path: Path) -> str:
    """Return the kind of a derived file: its name without digests.

    The digests may be of this version or an older one.
    """
    return re.sub(r"(-([0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{32}))+$", "", path.stem)


def _kept_array(folder: Path, kind: str, facts: Any, shape: tuple[int, int]) -> Tensor | None:
    """Return an array that is kept.

    Returns None if it is missing, cut short or another array.
    """
    arrays = (_opened(path, shape) for path in sorted(folder.glob(f"{_name(kind, facts)}-*.npy")))
    return next((array for array in arrays if array is not None), None)


def _opened(path: Path, shape: tuple[int, int]) -> Tensor | None:
    """Map an array, and lock its file until the array is gone.

    Returns None if it is missing, cut short or another array.
    """
    # NumPy's parser may raise anything on a file that was cut short.
    with contextlib.suppress(Exception):
        file = path.open("rb")
        if fcntl is not None:
            # Some file systems have no locks. There the file is never removed.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        array = map_array(path, file)
        if array.shape == shape and array.dtype == torch.float32:
            note_use(path)
            return remember_digest(array, path.stem.rpartition("-")[2])
    return None


def clusters_path(folder: Path, edges: str, facts: Any) -> Path:
    """Return the file of clusters in the cache; `edges` is the digest of the graph's edges."""
    return folder / f"clusters-{edges[:16]}-{digest_of(facts)[:16]}.npz"


def trim_clusters(folder: Path) -> None:
    """Remove the clusters that have not been used for longest.

    Those that stay in the cache take at most `CLUSTERS_LIMIT` bytes.
    """
    total_bytes = 0
    for path in sorted(folder.glob("clusters-*.npz"), key=_last_use, reverse=True):
        with contextlib.suppress(OSError):
            total_bytes += path.stat().st_size
            if total_bytes > CLUSTERS_LIMIT:
                path.unlink()


class KeptFile(NamedTuple):
    """A file, or the folder of a graph, that gistgnn keeps to save time."""

    path: Path
    bytes: int
    content: str  # what it is, for the user


def kept_for(graph: Graph) -> list[KeptFile]:
    """List what is kept for a graph.

    These are arrays in its folder, and its clusters and the graph itself in the user's cache.
    """
    folder = graph.folder
    files = [] if folder is None else [_described(path) for path in derived_files(folder)]
    if (cache := cache_folder()) is not None:
        files += [
            _described(path)
            for path in sorted(cache.glob(f"clusters-{graph.edges.digest()[:16]}-*.npz"))
        ]
        files += [
            _described(path)
            for path in _cached_graphs(cache)
            if _without_digest(path) == _file_name(graph.name)
        ]
    return files


def kept_in_cache() -> list[KeptFile]:
    """List all that is kept in the user's cache."""
    if (cache := cache_folder()) is None:
        return []
    return [
        _described(path) for path in (*sorted(cache.glob("clusters-*.npz")), *_cached_graphs(cache))
    ]


def remove_kept(file: KeptFile) -> bool:
    """Remove a file or a folder that is kept.

    Returns False if it is in use, or cannot be removed.
    """
    if not file.path.is_dir():
        return remove_unused(file.path)
    shutil.rmtree(file.path, ignore_errors=True)
    return not file.path.exists()


def _file_name(graph: str) -> str:
    """Return a graph's name as a part of a file's name; Windows allows no colons there."""
    return graph.replace(":", "-")


def _without_digest(cached_graph: Path) -> str:
    """Return the name of a graph's folder in the cache without the digest at its end."""
    return cached_graph.name.rpartition("-")[0]


def _cached_graphs(cache: Path) -> list[Path]:
    """Return the folders of the graphs in the user's cache."""
    return sorted(path.parent for path in cache.glob(f"*-{'[0-9a-f]' * 16}/{MANIFEST}"))


def _described(path: Path) -> KeptFile:
    if path.is_dir():
        size = sum(file.stat().st_size for file in path.iterdir())
        return KeptFile(path, size, "a graph that was drawn, or read from raw files")
    kind = _kind_of(path)
    content = next(
        (text for name, text in KINDS.items() if kind.startswith(name)),
        "clusters of a graph's nodes",
    )
    return KeptFile(path, path.stat().st_size, content)
