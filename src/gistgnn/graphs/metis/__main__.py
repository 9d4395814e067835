"""The program of METIS's process, with the arguments FOLDER COUNT SEED. Run by its path: this does not import torch."""

import ctypes
import signal
import sys
from pathlib import Path

import numpy as np
import pymetis


def main(folder: Path, count: int, seed: int) -> None:
    """Read rowptr.npy and col.npy, and write part.npy: [N] int64."""
    # METIS's own integer type: it then works on these arrays without a copy.
    rowptr, col = (np.load(folder / f"{name}.npy").astype(pymetis.zero_copy_dtype()) for name in ("rowptr", "col"))
    graph, options = pymetis.CSRAdjacency(rowptr, col), pymetis.Options(seed=seed)
    _, part = pymetis.part_graph(count, graph, options=options, warn_on_copies=True)
    np.save(folder / "part.npy", np.asarray(part, dtype=np.int64))


if __name__ == "__main__":
    if sys.platform == "linux":  # METIS can run for minutes: end this process when its parent is killed
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
