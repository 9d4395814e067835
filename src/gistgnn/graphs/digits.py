"""scikit-learn's handwritten digits as a graph: a small real data set that needs no download."""

from pathlib import Path

import numpy as np

from gistgnn.graphs.files import read_npz
from gistgnn.graphs.graph import Graph, undirected_graph
from gistgnn.graphs.named import DatasetInfo

FILE = Path(__file__).with_name("digits.npz")  # importing scikit-learn takes longer than the first run


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Join each of the 1,797 images of 8×8 pixels to its 10 nearest images, in both directions."""
    stored = read_npz(FILE, ("pixels", "y", "edges", "split"))
    one, other = stored["edges"].astype(np.int64)
    x, y = stored["pixels"] / 16.0, stored["y"].astype(np.int64)
    return undirected_graph(x, one, other, y, stored["split"], name=info.name)
