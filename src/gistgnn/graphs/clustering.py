"""Cluster of Algorithm 1: partition the nodes into c clusters, as in Cluster-GCN (section 2).

This module also chooses c where the user does not. The nodes of a cluster often share their class,
so a batch of a few large clusters shows few classes. As many nodes in more and smaller clusters
show more classes, and have fewer edges. What a batch shows is measured by the entropy of its
labels, as a share of that of as many random training nodes.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.graphs import metis
from gistgnn.graphs.cache import cache_folder, clusters_path, note_use, trim_clusters
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.streaming import stream_clusters
from gistgnn.storage.whole_files import replacing
from gistgnn.utils.checks import check_choice, check_count
from gistgnn.utils.formats import size
from gistgnn.utils.random_streams import check_seed, generator

Part = npt.NDArray[np.integer]

METHODS = ("metis", "split", "stream", "random")

# Part of the cache's key. Raise it when the same graph gets other clusters, or files get another
# form.
_VERSION = 5

# A graph is cut a first time into clusters of so many nodes, but into so many clusters at least.
NODES_PER_CLUSTER = 200
FEWEST_CLUSTERS = 20
PER_BATCH = 10  # clusters of the first cut in a batch
FEWEST_NODES = 20  # of a cluster
PIECES = 3  # into which a cluster is split at least
# Finer cuts have so many times the clusters of the first cut, and as many times more in a batch.
FINER = (1, 10 / 3, 10)
# Where the clusters are given, batches are tried with so many times as many of them.
LARGER = (1, 2, 4)
ENOUGH = 0.95  # of the entropy of random nodes
POOR = 0.75  # of the entropy of random nodes: the user's own choice gets a note below it
TRIALS = 20  # batches that are measured

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Clusters:
    """A partition of N nodes into clusters, none of them empty."""

    order: Tensor  # [N] int64, the nodes cluster by cluster, in ascending order inside a cluster
    ptr: Tensor  # [clusters + 1] int64; cluster k is ``order[ptr[k] : ptr[k + 1]]``
    path: Path | None = None  # their file in the cache

    def __len__(self) -> int:
        return self.ptr.numel() - 1

    @property
    def sizes(self) -> Tensor:
        return self.ptr.diff()

    @cached_property
    def assignment(self) -> Tensor:
        assignment = torch.empty_like(self.order)
        assignment[self.order] = torch.arange(len(self)).repeat_interleave(self.sizes)
        return assignment

    def kept_edges(self, edges: CSR) -> float:
        """Return the share of the edges with both ends in one cluster; 1 if there are no edges."""
        inside = self.assignment[edges.col] == self.assignment.repeat_interleave(
            edges.rowptr.diff()
        )
        return float(inside.double().mean()) if inside.numel() else 1.0


def cluster(
    edges: Tensor | CSR, num_nodes: int, count: int, method: str = "metis", seed: int = 0
) -> Clusters:
    """Partition N nodes into at most `count` clusters of about equal size.

    `method` is one of `METHODS`. Empty clusters are dropped. "metis" cuts few edges, taken in both
    directions, without self-loops. "split" splits the clusters of a first cut by METIS, in a
    fraction of the time of more clusters by METIS, and cuts somewhat more edges. "stream"
    (`stream_clusters`) cuts about as few as METIS, in less time and memory on large graphs.
    "random" has sizes that differ by at most one. Results of all methods but "random" are cached.

    Args:
        edges: by target; or [2, E], row 0 the sources.
        num_nodes: N.
        count: of the clusters.
        method: one of `METHODS`.
        seed: the same seed gives the same clusters.

    Raises:
        InputError: a value is out of range, or METIS fails.
    """
    check_choice("the clustering method", method, METHODS)
    count = check_count("clusters", count, most=num_nodes)
    seed = check_seed(seed)
    if method == "random":
        dealt = np.empty(num_nodes, np.int64)
        dealt[generator(seed, "clusters").permutation(num_nodes)] = (
            np.arange(num_nodes) * count // num_nodes
        )
        return clusters_of_parts(dealt, count)
    if not isinstance(edges, CSR):
        source, target = edges.cpu()
        keys = torch.unique(target * num_nodes + source)
        edges = CSR.of(torch.stack([keys % num_nodes, keys // num_nodes]), num_nodes)
    edges = CSR(
        edges.rowptr.cpu().long(),
        edges.col.cpu().to(torch.int32 if num_nodes < 2**31 else torch.int64),
    )
    if method == "split" and count > first_cut(num_nodes):
        # With fewer pieces of a cluster, the sizes of clusters would differ much.
        fewest = max(count // PIECES, 1)
        coarse = cluster(edges, num_nodes, min(first_cut(num_nodes), fewest), "metis", seed)
        return clusters_of_parts(_split(edges, coarse, count), count)
    if method == "split":
        method = "metis"
    cut = partial(_by_metis if method == "metis" else stream_clusters, edges, count, seed)
    part, path = _read_or_cut(edges, [_VERSION, method, count, seed], count, cut)
    return clusters_of_parts(part, count, path)


def _split(edges: CSR, coarse: Clusters, count: int) -> Part:
    """Split clusters into `count` ones of about equal size, and return the part of every node: [N].

    The nodes of a cluster are in the order of reverse Cuthill and McKee, a breadth-first search, so
    that neighbours are near to each other; runs of them are the parts.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    nodes = edges.num_nodes
    cluster_of = coarse.assignment.numpy()
    source = edges.col.numpy()
    target = edges.targets().numpy()
    is_inside = cluster_of[source] == cluster_of[target]
    ones = np.ones(int(is_inside.sum()), bool)
    inside = sp.csr_matrix((ones, (target[is_inside], source[is_inside])), (nodes, nodes))
    order = reverse_cuthill_mckee((inside + inside.T).tocsr(), symmetric_mode=True)
    place_of_node = np.empty(nodes, np.int64)
    place_of_node[order] = np.arange(nodes)
    sorted_nodes = np.lexsort((place_of_node, cluster_of))

    sizes = coarse.sizes.numpy()
    pieces = _pieces_of(sizes, count)
    first_node = np.concatenate([[0], sizes.cumsum()[:-1]]).repeat(sizes)
    first_piece = np.concatenate([[0], pieces.cumsum()[:-1]]).repeat(sizes)
    piece = (np.arange(nodes) - first_node) * pieces.repeat(sizes) // sizes.repeat(sizes)
    part = np.empty(nodes, np.int64)
    part[sorted_nodes] = first_piece + piece
    return part


def _pieces_of(sizes: Part, count: int) -> Part:
    """Return into how many pieces each cluster is split, at least one.

    There are `count` pieces, of about equal sizes.
    """
    exact = count * sizes / sizes.sum()
    pieces = np.maximum(np.floor(exact), 1).astype(np.int64)
    while (missing := count - int(pieces.sum())) != 0:
        if missing > 0:  # the clusters that lack most get one more
            pieces[np.argsort(pieces - exact, kind="stable")[:missing]] += 1
        else:
            pieces[np.argmax(pieces)] -= 1
    return pieces


def _by_metis(edges: CSR, count: int, seed: int) -> Part:
    targets = edges.targets()
    nodes = edges.num_nodes
    keep = edges.col != targets  # no self-loops
    ends = (targets[keep].numpy(), edges.col[keep].numpy())
    structure = sp.csr_matrix((np.ones(len(ends[0]), bool), ends), (nodes, nodes))
    structure.sum_duplicates()  # this sorts the entries as well
    structure = structure + structure.T.tocsr()
    entries = structure.nnz
    takes = f"a separate process takes about {size(metis.metis_bytes(nodes, entries))} of memory"
    log.info(
        f"METIS cuts {nodes:,} nodes and {entries // 2:,} edges into {count:,} clusters: {takes}"
    )
    return metis.metis_clusters(structure, count, int(generator(seed, "metis").integers(2**31)))


def clusters_of_parts(part: Part, count: int, path: Path | None = None) -> Clusters:
    """Return the clusters of a method's parts: [N], from 0 to ``count`` − 1.

    Empty ones are left out.
    """
    sizes = np.bincount(part)
    ptr = np.concatenate([[0], sizes[sizes > 0].cumsum()])
    empty = count - (len(ptr) - 1)
    if empty:
        log.warning("%d of the %d clusters are empty; they are dropped", empty, count)
    return Clusters(torch.from_numpy(part.argsort(kind="stable")), torch.from_numpy(ptr), path)


def _read_or_cut(
    edges: CSR, settings: list[Any], count: int, cut: Callable[[], Part]
) -> tuple[Part, Path | None]:
    """Return the parts of all nodes, and their file in the cache.

    They are read from the cache. Where it lacks them, ``cut`` makes them; the file is None if it
    cannot be written. The edges and the settings decide the parts.
    """
    if (folder := cache_folder()) is None:
        return cut(), None
    digest = edges.digest()
    path = clusters_path(folder, digest, [digest, *settings])
    try:
        with np.load(path) as arrays:
            part = arrays["part"].astype(np.int64)
        if part.shape != (edges.num_nodes,) or part.min() < 0 or part.max() >= count:
            raise InputError("is of another graph")
        note_use(path)
        return part, path
    except OSError:  # there is no such file
        pass
    except Exception as error:  # damaged bytes raise anything
        log.warning("%s is damaged (%s): its clusters are computed again", path, reason(error))
    part = cut()
    with contextlib.suppress(InputError), replacing(path) as temporary:
        np.savez(temporary, part=part.astype(np.int32))
    trim_clusters(folder)
    return part, path if path.exists() else None


def first_cut(nodes: int) -> int:
    """Return how many clusters the first cut of a graph of N nodes has."""
    return min(max(-(-nodes // NODES_PER_CLUSTER), FEWEST_CLUSTERS), nodes)


def first_batch(nodes: int, clusters: int) -> int:
    """Return how many of c clusters make a batch.

    It has as many nodes as `PER_BATCH` clusters of the first cut.
    """
    return min(max(PER_BATCH, round(PER_BATCH * clusters / first_cut(nodes))), clusters)


def choose_clusters(
    cut: Callable[[int], Clusters], nodes: int, share: Callable[[Clusters, int], float | None]
) -> tuple[Clusters, int, float | None]:
    """Cut a graph as finely as batches of about 2,000 nodes need to have enough entropy.

    Returns the clusters, how many make a batch, and its share of the entropy.
    """
    first = first_cut(nodes)
    most = max(nodes // FEWEST_NODES, first)
    counts = dict.fromkeys(min(round(finer * first), most) for finer in FINER)  # each of them once
    for count in counts:
        if count > first:
            log.info("batches show few classes, so the graph is cut more finely")
        clusters = cut(count)
        q = first_batch(nodes, len(clusters))
        entropy = share(clusters, q)
        if entropy is None or entropy >= ENOUGH:
            break
    return clusters, q, entropy


def entropy_share(
    y: Tensor, train: Tensor, assignment: Tensor, per_batch: int, seed: int
) -> float | None:
    """Return the mean entropy of the labels in batches, over that of as many random nodes.

    A batch has ``per_batch`` clusters. ``y`` has class indices [N], or several labels [N, K] of 0
    and 1. For other targets the share is None. ``train`` has the numbers of the training nodes,
    ``assignment`` the cluster of every node: [N].
    """
    labels = y[train].cpu()
    if labels.dim() == 1 and not labels.is_floating_point():
        rows = np.arange(len(labels))
        columns = labels.numpy()
    elif labels.dim() == 2 and bool(((labels == 0) | (labels == 1)).all()):
        rows, columns = labels.nonzero().T.numpy()
    else:  # a regression
        return None
    ones = np.ones(len(rows), np.float32)
    labels_of_node = sp.csr_matrix(
        (ones, (rows, columns)), (len(labels), int(columns.max(initial=0)) + 1)
    )
    cluster_of = assignment[train.cpu()].numpy()
    nodes = len(cluster_of)
    clusters = int(assignment.max()) + 1
    sums = sp.csr_matrix(
        (np.ones(nodes, np.float32), (cluster_of, np.arange(nodes))), (clusters, nodes)
    )
    counts = sums @ labels_of_node
    sizes = np.bincount(cluster_of, minlength=clusters)
    rng = generator(seed, "label entropy")
    of_batches = 0.0
    of_random_nodes = 0.0
    for _ in range(TRIALS):
        batch = rng.permutation(clusters)[:per_batch]
        of_batches += _entropy(counts[batch])
        of_random_nodes += _entropy(
            labels_of_node[rng.choice(nodes, sizes[batch].sum(), replace=False)]
        )
    return of_batches / of_random_nodes if of_random_nodes else None


def _entropy(counts: sp.csr_matrix) -> float:
    """Return the entropy of the classes, whose nodes are counted row by row."""
    p = np.asarray(counts.sum(axis=0), np.float64).ravel()
    p = p[p > 0] / p.sum()
    return float(-(p * np.log(p)).sum())
