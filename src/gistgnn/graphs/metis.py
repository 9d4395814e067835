"""METIS in a process of its own, whose program is this file.

pymetis holds Python's lock while it works, for minutes on millions of nodes. In this process, that
would stop the clocks and ignore Ctrl-C. A process of its own also returns its memory, and survives
METIS's aborts.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gistgnn.errors import InputError
from gistgnn.utils.formats import size

# Peak memory of the process in bytes, measured on graphs with power-law degrees and planted
# communities, with 0.2 to 10.6 million directed edges: accurate to a tenth above a million edges.
BYTES_PER_NODE = 200
BYTES_PER_EDGE = 70
BASE_BYTES = 50 * 2**20

Ints = npt.NDArray[np.int64]


def metis_bytes(nodes: int, edges: int) -> int:
    """Estimate the memory that METIS needs for a graph with ``edges`` directed edges.

    Both directions count.
    """
    return BASE_BYTES + BYTES_PER_NODE * nodes + BYTES_PER_EDGE * edges


def metis_clusters(graph: sp.csr_matrix, count: int, seed: int, weight: Ints | None = None) -> Ints:
    """Return the part of every node: [N].

    With ``weight``: [N], the values of ``graph`` weigh its edges.
    """
    this_file = files("gistgnn.graphs") / Path(__file__).name  # the package may be in a zip
    with (
        tempfile.TemporaryDirectory(prefix="gistgnn-metis-") as name,
        as_file(this_file) as program,
    ):
        folder = Path(name)
        try:
            sp.save_npz(folder / "graph.npz", graph, compressed=False)
            if weight is not None:
                np.save(folder / "weight.npy", weight)
        except OSError as error:
            raise InputError(
                f"no room for the graph in {folder}: {error.strerror}; set TMPDIR to another"
            ) from None
        # It sees the same packages. Its own session: Ctrl-C reaches this process alone, which then
        # ends the other.
        command = [sys.executable, "-P", str(program), name, str(count), str(seed)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        options: dict[str, Any] = {
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
        }
        finished = subprocess.run(command, env=environment, check=False, **options)
        if finished.returncode:
            last_line = (
                finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"]
            )[-1][:160]
            needs = f"it needs about {size(metis_bytes(graph.shape[0], graph.nnz))} of free memory"
            fault = (
                f"METIS failed on {graph.shape[0]:,} nodes and {graph.nnz:,} edges ({last_line})"
            )
            raise InputError(f"{fault}: {needs}; clusters by the random method need no METIS")
        return np.load(folder / "part.npy", allow_pickle=False)


def partition_here(graph: sp.csr_matrix, count: int, seed: int, weight: Ints | None = None) -> Ints:
    """Do in this process what `metis_clusters` does."""
    import pymetis  # here: the process that starts METIS does without it

    # With METIS's own integers it works on these arrays without a copy.
    kind = pymetis.zero_copy_dtype()
    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(kind), graph.indices.astype(kind))
    weights = {}
    if weight is not None:
        weights = {"vweights": weight.astype(kind), "eweights": graph.data.astype(kind)}
    _, part = pymetis.part_graph(
        count, adjacency, options=pymetis.Options(seed=seed), warn_on_copies=True, **weights
    )
    return np.asarray(part, dtype=np.int64)


def _main(folder: Path, count: int, seed: int) -> None:
    """Read graph.npz, and weight.npy if there is one, and write part.npy."""
    # The system ends this process when its parent is killed, as METIS can run for minutes.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    weight = np.load(folder / "weight.npy") if (folder / "weight.npy").exists() else None
    np.save(
        folder / "part.npy", partition_here(sp.load_npz(folder / "graph.npz"), count, seed, weight)
    )


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
