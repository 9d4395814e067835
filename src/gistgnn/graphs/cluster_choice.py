"""How many clusters a graph is cut into, and how many make a batch, where the user does not say.

The nodes of a cluster often share their class. So a batch of a few large clusters shows few classes. A batch of as many
nodes in more and smaller clusters shows more of them, and has fewer edges. What a batch shows is measured by the
entropy of its labels, as a share of that of as many random training nodes.
"""

import logging
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from gistgnn.graphs.clustering import Clusters
from gistgnn.utils.random_streams import generator

log = logging.getLogger(__name__)

NODES_PER_CLUSTER, FEWEST_CLUSTERS = 200, 20  # of the first cut
PER_BATCH = 10  # clusters of the first cut
FEWEST_NODES = 20  # of a cluster
FINER = (1, 10 / 3, 10)  # times as many clusters as in the first cut, and as many times more in a batch
LARGER = (1, 2, 4)  # times as many clusters in a batch, where the clusters are given
ENOUGH = 0.95  # of the entropy of random nodes
POOR = 0.75  # of the entropy of random nodes: the user's own choice gets a note below it
TRIALS = 20  # batches that are measured


def first_cut(nodes: int) -> int:
    """Return how many clusters the first cut of a graph of N nodes has."""
    return min(max(-(-nodes // NODES_PER_CLUSTER), FEWEST_CLUSTERS), nodes)


def first_batch(nodes: int, clusters: int) -> int:
    """Return how many of c clusters make a batch: as many nodes as in `PER_BATCH` clusters of the first cut."""
    return min(max(PER_BATCH, round(PER_BATCH * clusters / first_cut(nodes))), clusters)


def choose_clusters(
    cut: Callable[[int], Clusters], nodes: int, share: Callable[[Clusters, int], float | None]
) -> tuple[Clusters, int, float | None]:
    """Cut a graph as finely as batches of about 2,000 nodes need to have enough entropy.

    Returns the clusters, how many make a batch, and its share of the entropy.
    """
    first = first_cut(nodes)
    for count in dict.fromkeys(max(min(round(finer * first), nodes // FEWEST_NODES), first) for finer in FINER):
        if count > first:
            log.info("batches show few classes, so the graph is cut more finely")
        clusters = cut(count)
        q = first_batch(nodes, len(clusters))
        found = share(clusters, q)
        if found is None or found >= ENOUGH:
            break
    return clusters, q, found


def choose_per_batch(clusters: int, first: int, share: Callable[[int], float | None]) -> tuple[int, float | None]:
    """Return how many of c given clusters make a batch, and the share of the entropy that it has."""
    for q in (min(times * first, clusters) for times in LARGER):
        found = share(q)
        if found is None or found >= ENOUGH or q == clusters:
            break
    return q, found


def entropy_share(y: Tensor, train: Tensor, assignment: Tensor, per_batch: int, seed: int) -> float | None:
    """Return the mean entropy of the labels in batches, over that of as many random training nodes.

    Args:
        y: class indices [N], or targets [N, K] of several labels; else the share is None.
        train: indices of the training nodes.
        assignment: the cluster of every node, [N].
        per_batch: q.
        seed: of the batches that are measured.
    """
    labels = y[train].cpu()
    if labels.is_floating_point() and labels.dim() == 1:
        return None
    rows, columns = labels.nonzero().T.numpy() if labels.dim() == 2 else (np.arange(len(labels)), labels.numpy())
    ones = np.ones(len(rows), np.float32)
    each = sp.csr_matrix((ones, (rows, columns)), (len(labels), int(columns.max(initial=0)) + 1))
    of = assignment[train.cpu()].numpy()
    number = int(assignment.max()) + 1
    sums = sp.csr_matrix((np.ones(len(of), np.float32), (of, np.arange(len(of)))), (number, len(of)))
    counts, sizes = sums @ each, np.bincount(of, minlength=number)
    rng, ours, others = generator(seed, "label entropy"), 0.0, 0.0
    for _ in range(TRIALS):
        batch = rng.permutation(number)[:per_batch]
        ours += _entropy(counts[batch])
        others += _entropy(each[rng.choice(len(of), sizes[batch].sum(), replace=False)])
    return ours / others if others else None


def _entropy(counts: sp.csr_matrix) -> float:
    """Return the entropy of the classes, whose nodes are counted row by row."""
    p = np.asarray(counts.sum(axis=0), np.float64).ravel()
    p = p[p > 0] / p.sum()
    return float(-(p * np.log(p)).sum())
