"""METIS in a process of its own.

pymetis keeps Python's lock while it works, which is minutes for millions of nodes: in this process no clock would go on
and Ctrl-C would not be heard. The other process also gives its memory back, and takes METIS's own aborts with it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError

# Peak of the process in bytes, as measured on graphs with power-law degrees and planted communities, of 0.2 to 10.6
# million directed edges: within a tenth for more than a million edges.
BYTES_PER_NODE, BYTES_PER_EDGE, BASE_BYTES = 200, 70, 50 * 2**20


def metis_bytes(nodes: int, edges: int) -> int:
    """The memory that METIS takes, about, for a graph with ``edges`` directed edges (both directions counted)."""
    return BASE_BYTES + BYTES_PER_NODE * nodes + BYTES_PER_EDGE * edges


def partition(rowptr: npt.NDArray[Any], col: npt.NDArray[Any], count: int, seed: int) -> npt.NDArray[np.int64]:
    """The part of every node: [N], 0 <= part < count, with few edges between parts of about equal size.

    Args:
        rowptr: [N + 1], the CSR structure of a symmetric graph without self-loops.
        col: [E].
        count: how many parts; METIS may leave some of them empty.
        seed: 0 <= seed < 2^31.

    Raises:
        InputError: METIS failed, for want of memory for instance, or there is no room for its files.
    """
    with tempfile.TemporaryDirectory(prefix="gistgnn-metis-") as name:
        folder = Path(name)
        try:
            np.save(folder / "rowptr.npy", rowptr)
            np.save(folder / "col.npy", col)
        except OSError as error:
            raise InputError(f"no room for the graph in {folder}: {error.strerror}; set TMPDIR to another") from error
        child = [sys.executable, str(Path(__file__).parent), name, str(count), str(seed)]
        # Its own session: Ctrl-C is for this process, which then ends the other.
        done = subprocess.run(child, stderr=subprocess.PIPE, text=True, check=False, start_new_session=True)
        if done.returncode:
            raise InputError(_failure(done, len(rowptr) - 1, len(col)))
        part: npt.NDArray[np.int64] = np.load(folder / "part.npy", allow_pickle=False)
        return part


def _failure(done: "subprocess.CompletedProcess[str]", nodes: int, edges: int) -> str:
    said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    wanted = metis_bytes(nodes, edges) / 2**30
    return (
        f"METIS failed on {nodes:,} nodes and {edges:,} edges ({said[:160]}): it needs about {wanted:.1f} GiB of free "
        "memory; the random method needs none"
    )
