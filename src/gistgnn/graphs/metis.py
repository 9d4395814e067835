"""METIS in a process of its own, whose program is this file.

pymetis holds Python's lock while it works, for minutes on millions of nodes. In this process, that would stop the
clocks and ignore Ctrl-C. A process of its own also returns its memory, and survives METIS's aborts.
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gistgnn.errors import InputError
from gistgnn.utils.formats import size

# Peak memory of the process in bytes, measured on graphs with power-law degrees and planted communities, with 0.2 to
# 10.6 million directed edges: accurate to a tenth above a million edges.
BYTES_PER_NODE, BYTES_PER_EDGE, BASE_BYTES = 200, 70, 50 * 2**20

PARTS = 8
LARGE = 2_000_000  # directed edges; below, METIS takes a second or two
_CLUSTERS = 16  # of a part, at least: parts of unequal size can then have clusters of about equal size

Ints = npt.NDArray[np.int64]


def metis_bytes(nodes: int, edges: int) -> int:
    """Estimate the memory that METIS needs for a graph with ``edges`` directed edges (both directions counted)."""
    return BASE_BYTES + BYTES_PER_NODE * nodes + BYTES_PER_EDGE * edges


def metis_clusters(graph: sp.csr_matrix, count: int, seed: int, weight: Ints | None = None) -> Ints:
    """Return the part of every node: [N]. With ``weight``: [N], the values of ``graph`` weigh its edges."""
    with tempfile.TemporaryDirectory(prefix="gistgnn-metis-") as name:
        folder = Path(name)
        try:
            sp.save_npz(folder / "graph.npz", graph, compressed=False)
            if weight is not None:
                np.save(folder / "weight.npy", weight)
        except OSError as error:
            raise InputError(f"no room for the graph in {folder}: {error.strerror}; set TMPDIR to another") from None
        # It sees the same packages. Its own session: Ctrl-C reaches this process alone, which then ends the other.
        command, environment = [sys.executable, "-P", __file__, name, str(count), str(seed)], dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        how: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        done = subprocess.run(command, env=environment, check=False, **how)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:160]
            needs = f"it needs about {size(metis_bytes(graph.shape[0], graph.nnz))} of free memory"
            what = f"METIS failed on {graph.shape[0]:,} nodes and {graph.nnz:,} edges ({said})"
            raise InputError(f"{what}: {needs}; the random method needs none")
        return np.load(folder / "part.npy", allow_pickle=False)


def partition_here(graph: sp.csr_matrix, count: int, seed: int, weight: Ints | None = None) -> Ints:
    """Do in this process what `partition` does."""
    # A large graph is cut into a few parts, then each part into its clusters, by as many processes as there are cores.
    # The number of parts does not depend on the cores, so the clusters are the same on every machine.
    global _job
    if graph.nnz < LARGE or count < PARTS * _CLUSTERS:
        return _cut(graph, count, seed, weight)
    top = _cut(graph, PARTS, seed, weight)
    counts = shares(np.bincount(top, weight, minlength=PARTS), count)
    _job = graph, top, counts, seed, weight
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if cores == 1:  # elsewhere a fork is not safe, and the graph would be copied
        parts = list(map(_cut_part, range(PARTS)))
    else:
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(min(cores, PARTS), mp_context=fork, initializer=_end_with_parent) as pool:
            parts = list(pool.map(_cut_part, range(PARTS)))
    clusters, starts = np.empty(len(top), np.int64), np.cumsum(counts) - counts
    for k, found in enumerate(parts):
        clusters[top == k] = starts[k] + found
    return clusters


def _cut(graph: sp.csr_matrix, count: int, seed: int, weight: Ints | None) -> Ints:
    import pymetis  # here: the process that starts METIS does without it

    kind = pymetis.zero_copy_dtype()  # METIS's own integers: it then works on these arrays without a copy
    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(kind), graph.indices.astype(kind))
    weights = {}
    if weight is not None:
        weights = {"vweights": weight.astype(kind), "eweights": graph.data.astype(kind)}
    _, part = pymetis.part_graph(count, adjacency, options=pymetis.Options(seed=seed), warn_on_copies=True, **weights)
    return np.asarray(part, dtype=np.int64)


def shares(sizes: Ints, count: int) -> Ints:
    """Divide ``count`` clusters among parts in proportion to their sizes: [parts]."""
    exact = sizes * (count / sizes.sum())
    whole = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: count - whole.sum()]] += 1
    return whole


_job: Any = None  # what forked processes inherit


def _cut_part(k: int) -> Ints:
    graph, top, counts, seed, weight = _job
    nodes = np.flatnonzero(top == k)
    return _cut(graph[nodes][:, nodes], int(counts[k]), seed, None if weight is None else weight[nodes])


def _end_with_parent() -> None:
    """Let the system end this process when its parent is killed: METIS can run for minutes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _main(folder: Path, count: int, seed: int) -> None:
    """Read graph.npz, and weight.npy if there is one, and write part.npy."""
    _end_with_parent()
    weight = np.load(folder / "weight.npy") if (folder / "weight.npy").exists() else None
    np.save(folder / "part.npy", partition_here(sp.load_npz(folder / "graph.npz"), count, seed, weight))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
