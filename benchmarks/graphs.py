"""Random graphs of communities. Their clusters are known, so METIS is not needed."""

import math

import numpy as np
import torch

from gistgnn.graphs import CSR
from gistgnn.graphs.clustering import Clusters
from gistgnn.sampling import Batch

INSIDE = 0.9  # share of a batch's edges inside one cluster


def communities(
    *, nodes: int, edges: int, per_batch: int, clusters: int, features: int, classes: int, seed: int = 0
) -> tuple[Batch, Clusters]:
    """Draw a graph whose batches of ``per_batch`` clusters have about this many nodes and edges.

    Args:
        nodes: nodes of a batch.
        edges: edges of a batch, both directions counted.
        per_batch: q, clusters in a batch.
        clusters: c, clusters of the graph.
        features: features of a node, standard normal.
        classes: number of classes; every node has a random one.
        seed: seed of the graph.
    """
    rng = np.random.default_rng(seed)
    size, total = nodes // per_batch, nodes // per_batch * clusters
    inside = drawn(edges * INSIDE / per_batch / 2, size * size / 2) * clusters
    # Two clusters share a batch in q(q-1) of c(c-1) cases. Only then the edges between them are used.
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
    """Return how many edges to draw, with repetition, to get about the wanted number of distinct edges."""
    return round(-places * math.log(1 - min(wanted / places, 0.99)))


def pattern_of(target: np.ndarray, source: np.ndarray, nodes: int) -> CSR:
    """Return the edges' pattern without duplicates and self-loops, which PyG's two layouts treat differently."""
    keys = np.unique((target.astype(np.int64) * nodes + source)[target != source])
    row, col = torch.from_numpy(keys // nodes), torch.from_numpy(keys % nodes)
    return CSR.from_sorted(row.int(), col.int(), (nodes, nodes))


def in_order(sizes: np.ndarray) -> Clusters:
    """Return clusters of these sizes for nodes that are numbered cluster by cluster."""
    ptr = np.concatenate([[0], sizes.cumsum()])
    return Clusters(torch.arange(int(ptr[-1])), torch.from_numpy(ptr))
