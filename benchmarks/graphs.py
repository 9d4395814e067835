"""Random graphs of communities, made cluster by cluster, so that METIS is not needed."""

import math

import numpy as np
import torch

from gistgnn.graphs.clustering import Clusters
from gistgnn.nn.pattern import Pattern
from gistgnn.sampling import Batch

INSIDE = 0.9  # of a batch's edges, those within one cluster


def communities(
    *, nodes: int, edges: int, per_batch: int, clusters: int, features: int, classes: int, seed: int = 0
) -> tuple[Batch, Clusters]:
    """A graph whose unions of ``per_batch`` of its clusters have about this many nodes and edges.

    Args:
        nodes: of a batch.
        edges: of a batch, both directions counted.
        per_batch: q, clusters in a batch.
        clusters: c, of the graph.
        features: of a node, standard normal.
        classes: of which every node has a random one.
        seed: of it all.
    """
    rng = np.random.default_rng(seed)
    size, total = nodes // per_batch, nodes // per_batch * clusters
    inside = drawn(edges * INSIDE / per_batch / 2, size * size / 2) * clusters
    # A pair of clusters shares a batch in q(q-1) of c(c-1) cases, and its edges are seen in those alone.
    pairs = clusters * (clusters - 1) / max(per_batch * (per_batch - 1), 1)
    across = round(edges * (1 - INSIDE) / 2 * pairs)
    one = rng.integers(total, size=inside + across)
    home = one[:inside] // size * size
    other = np.concatenate([home + rng.integers(size, size=inside), rng.integers(total, size=across)])
    pattern = pattern_of(np.concatenate([one, other]), np.concatenate([other, one]), total)
    x = torch.from_numpy(rng.standard_normal((total, features), dtype=np.float32))
    y = torch.from_numpy(rng.integers(classes, size=total))
    return Batch(x, pattern, y, torch.arange(total)), in_order(np.full(clusters, size))


def drawn(wanted: float, places: float) -> int:
    """How many edges to draw among so many places, so that about the wanted number differ."""
    return round(-places * math.log(1 - min(wanted / places, 0.99)))


def pattern_of(target: np.ndarray, source: np.ndarray, nodes: int) -> Pattern:
    """The pattern of the edges, every one once, and no self-loops: PyG's two layouts take these differently."""
    keys = np.unique((target.astype(np.int64) * nodes + source)[target != source])
    row, col = torch.from_numpy(keys // nodes), torch.from_numpy(keys % nodes)
    return Pattern.from_sorted(row.int(), col.int(), (nodes, nodes))


def in_order(sizes: np.ndarray) -> Clusters:
    """Clusters of these sizes, of nodes that are numbered in their order."""
    ptr = np.concatenate([[0], sizes.cumsum()])
    return Clusters(torch.arange(int(ptr[-1])), torch.from_numpy(ptr))
