"""The user's cache folder. It keeps graphs that are slow to parse or to draw, as ``.npz`` files."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.by_target import GraphByTarget
from gistgnn.graphs.checks import check_features, check_labels, check_splits
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.npz import read_npz
from gistgnn.storage.whole_files import replacing

# Part of every fingerprint: raise it when a reader makes another graph from the same raw files.
_VERSION = 1
_SPLITS = ("train", "val", "test")
_KEYS = ("x", "y", *_SPLITS, "num_classes", "rowptr", "col")


def cache_folder() -> Path | None:
    """Return ``$GISTGNN_CACHE`` or ``~/.cache/gistgnn``; None if the user has no home, as in some containers."""
    try:
        return Path(os.environ.get("GISTGNN_CACHE") or Path.home() / ".cache" / "gistgnn").expanduser()
    except RuntimeError:
        return None


def cached(name: str, key: str, build: Callable[[], Graph]) -> GraphByTarget:
    """Return the graph that ``build`` makes, from the cache if it was made before with this name and key.

    Its edges are held by target, in 4 bytes each; ``edge_index`` would take 16. It has no edge data.

    A damaged file in the cache is replaced. If the cache cannot be written, the graph is built every time. ``key`` is
    everything that determines the graph, such as the `fingerprint` of raw files.

    Raises:
        InputError: from ``build``.
    """
    folder = cache_folder()
    if folder is None:
        return _by_target(build())
    digest = hashlib.sha256(f"by target {key}".encode()).hexdigest()[:16]
    path = folder / f"{name.replace(':', '-')}-{digest}.npz"  # Windows allows no colons in file names
    with contextlib.suppress(InputError, OSError):  # damaged, or missing
        return _read(path, name)
    graph = _by_target(build())
    with contextlib.suppress(OSError, InputError):
        folder.mkdir(parents=True, exist_ok=True)
        _write(graph, path)
    return graph


def fingerprint(sources: Sequence[Path]) -> str:
    """Return a key for raw files: their paths, sizes and modification times."""
    states = ((source.resolve(), source.stat()) for source in sources)
    return "\0".join([f"{_VERSION}", *(f"{path}\0{state.st_size}\0{state.st_mtime_ns}" for path, state in states)])


def _by_target(graph: Graph) -> GraphByTarget:
    edges = CSR.of(graph.edge_index, graph.num_nodes)
    col = edges.col.to(torch.int32 if graph.num_nodes < 2**31 else torch.int64)
    others = {field.name: getattr(graph, field.name) for field in fields(Graph) if field.name != "edge_index"}
    return GraphByTarget(edge_index=CSR(edges.rowptr, col), **others)


def _write(graph: GraphByTarget, path: Path) -> None:
    arrays: dict[str, Any] = {name: getattr(graph, name).numpy() for name in ("x", "y", *_SPLITS)}
    arrays |= {"rowptr": graph.edges.rowptr.numpy(), "col": graph.edges.col.numpy()}
    with replacing(path) as temporary:
        np.savez(temporary, num_classes=np.asarray(graph.num_classes), **arrays)


def _read(path: Path, name: str) -> GraphByTarget:
    """Read a graph. The archive's checksums find damage; edges beyond the nodes would end the process."""
    arrays = read_npz(path, _KEYS)
    x = check_features(arrays["x"])
    y, classes = check_labels(arrays["y"], len(x), int(arrays["num_classes"]))
    edges = CSR(torch.from_numpy(arrays["rowptr"]), torch.from_numpy(arrays["col"]))
    steps, (low, high) = edges.rowptr.diff(), edges.col.aminmax()
    inside = edges.rowptr[0] == 0 and edges.rowptr[-1] == edges.num_edges and low >= 0 and high < len(x)
    if edges.num_nodes != len(x) or not inside or steps.min() < 0:
        raise InputError(f"{path} is damaged: its edges do not fit its {len(x)} nodes")
    masks = check_splits({split: arrays[split] for split in _SPLITS}, y)
    return GraphByTarget(x, edges, y, **masks, num_classes=classes, name=name)
