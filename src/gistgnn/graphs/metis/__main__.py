"""The program of METIS's process, with the arguments FOLDER COUNT SEED. Run by its path: this does not import torch.

A large graph is cut in two steps: into a few parts, and then every part into its clusters, in as many processes as
there are cores. The number of parts does not depend on the cores, so the clusters are the same on every machine.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pymetis
import scipy.sparse as sp

PARTS = 8
LARGE = 2_000_000  # directed edges; below, METIS takes a second or two
_CLUSTERS = 16  # a part gets at least so many, so that parts of unequal size can have clusters of about equal size

Array = np.ndarray[Any, np.dtype[Any]]


def partition(graph: sp.csr_matrix, count: int, seed: int, weight: Array | None = None) -> Array:
    """Return the cluster of every node: [N] int64.

    ``graph`` is symmetric; ``weight``: [N] are the weights of its nodes. Then its values are those of its edges.
    """
    if graph.nnz < LARGE or count < PARTS * _CLUSTERS:
        return cut(graph, count, seed, weight)
    top = cut(graph, PARTS, seed, weight)
    counts = shares(np.bincount(top, weight, minlength=PARTS), count)
    clusters, first = np.empty(len(top), np.int64), 0
    for k, found in enumerate(_each(partial(_cut_part, graph, top, counts, seed, weight))):
        clusters[top == k] = first + found
        first += counts[k]
    return clusters


def cut(graph: sp.csr_matrix, count: int, seed: int, weight: Array | None = None) -> Array:
    """Return the part of every node, from 0 to count − 1; some may be empty. See `partition`."""
    kind = pymetis.zero_copy_dtype()  # METIS's own integers: it then works on these arrays without a copy
    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(kind), graph.indices.astype(kind))
    weights = {}
    if weight is not None:
        weights = {"vweights": weight.astype(kind), "eweights": graph.data.astype(kind)}
    _, part = pymetis.part_graph(count, adjacency, options=pymetis.Options(seed=seed), warn_on_copies=True, **weights)
    return np.asarray(part, dtype=np.int64)


def shares(sizes: Array, count: int) -> Array:
    """Divide ``count`` clusters among parts in proportion to their sizes: [parts] int64."""
    exact = sizes * (count / sizes.sum())
    whole = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: count - whole.sum()]] += 1
    return whole


def _cut_part(graph: sp.csr_matrix, top: Array, counts: Array, seed: int, weight: Array | None, k: int) -> Array:
    nodes = np.flatnonzero(top == k)
    return cut(graph[nodes][:, nodes], int(counts[k]), seed, None if weight is None else weight[nodes])


_work: Any = None  # what forked processes inherit


def _each(work: Any) -> Iterator[Array]:
    """Yield ``work(k)`` for every part, in order."""
    global _work
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if cores == 1:  # elsewhere a fork is not safe, and the graph would be copied
        yield from map(work, range(PARTS))
        return
    _work = work
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(cores, PARTS), mp_context=fork, initializer=_end_with_parent) as pool:
        yield from pool.map(_call, range(PARTS))


def _call(k: int) -> Array:
    found: Array = _work(k)
    return found


def _end_with_parent() -> None:
    """Let the system end this process when its parent is killed: METIS can run for minutes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main(folder: Path, count: int, seed: int) -> None:
    """Read graph.npz, and weight.npy if there is one, and write part.npy: [N] int64."""
    weight = folder / "weight.npy"
    found = partition(sp.load_npz(folder / "graph.npz"), count, seed, np.load(weight) if weight.exists() else None)
    np.save(folder / "part.npy", found)


if __name__ == "__main__":
    _end_with_parent()
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
