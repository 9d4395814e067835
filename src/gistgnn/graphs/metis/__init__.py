"""METIS in a separate process.

pymetis holds Python's lock while it works, for minutes on millions of nodes. In this process, that would stop the
clocks and ignore Ctrl-C. A separate process also returns its memory, and survives METIS's own aborts.
"""

import subprocess
import sys
import tempfile
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


def metis_bytes(nodes: int, edges: int) -> int:
    """Estimate the memory that METIS needs for a graph with ``edges`` directed edges (both directions counted)."""
    return BASE_BYTES + BYTES_PER_NODE * nodes + BYTES_PER_EDGE * edges


def partition(
    graph: sp.csr_matrix, count: int, seed: int, weight: npt.NDArray[Any] | None = None
) -> npt.NDArray[np.int64]:
    """Return the part of every node: [N], from 0 to count − 1. Few edges are between parts; some parts may be empty.

    Args:
        graph: [N, N], symmetric, without self-loops.
        count: of the parts.
        seed: from 0 to 2^31 − 1.
        weight: [N] positive integers: the size of a part is the sum of its nodes' weights, and the values of ``graph``
            are the weights of its edges. None: all weights are 1, and the parts have about as many nodes.
    """
    with tempfile.TemporaryDirectory(prefix="gistgnn-metis-") as name:
        folder = Path(name)
        try:
            sp.save_npz(folder / "graph.npz", graph, compressed=False)
            if weight is not None:
                np.save(folder / "weight.npy", weight)
        except OSError as error:
            raise InputError(f"no room for the graph in {folder}: {error.strerror}; set TMPDIR to another") from None
        command = [sys.executable, str(Path(__file__).parent), name, str(count), str(seed)]
        # A session of its own: Ctrl-C reaches this process only, which then ends the other.
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, start_new_session=True)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:160]
            nodes, edges = graph.shape[0], graph.nnz
            needs = f"it needs about {size(metis_bytes(nodes, edges))} of free memory; the random method needs none"
            raise InputError(f"METIS failed on {nodes:,} nodes and {edges:,} edges ({said}): {needs}")
        part: npt.NDArray[np.int64] = np.load(folder / "part.npy", allow_pickle=False)
        return part
