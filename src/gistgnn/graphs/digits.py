"""scikit-learn's handwritten digits as a graph: a small real data set that needs no download."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.splits import SPLIT_SEED


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Join each of the 1,797 images of 8×8 pixels to its 10 nearest images, in both directions.

    Features are the pixels divided by 16, in [0, 1]. The split is 10 % train, 20 % val and 70 % test, stratified by
    class, and the same for every seed of a run. ``data_root`` is not used: the images come with scikit-learn.
    """
    pixels, y = load_digits(return_X_y=True)
    x = pixels / 16.0
    # Distances of whole numbers are exact, and a tree breaks ties in the same way for any number of threads.
    tree = NearestNeighbors(n_neighbors=10, algorithm="ball_tree").fit(pixels)
    nearest = tree.kneighbors_graph()
    edges = np.stack((nearest + nearest.T).nonzero())
    nodes = np.arange(len(y))
    train, rest = train_test_split(nodes, train_size=0.1, stratify=y, random_state=SPLIT_SEED)
    val, test = train_test_split(rest, train_size=2 / 9, stratify=y[rest], random_state=SPLIT_SEED)
    return Graph.build(x, edges, y, train=train, val=val, test=test, name=info.name)
