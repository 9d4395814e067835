"""Cluster of Algorithm 1: partition the nodes into c clusters, as in Cluster-GCN (section 2)."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.graphs import metis
from gistgnn.graphs.cache import cache_folder
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.streaming import stream_clusters
from gistgnn.storage.whole_files import replacing
from gistgnn.utils.formats import size
from gistgnn.utils.random_streams import check_seed, generator
from gistgnn.utils.tensors import digest_of

Part = npt.NDArray[np.integer]

METHODS = ("metis", "stream", "random")

_VERSION = 4  # part of the cache's key: raise it when the same graph gets other clusters, or files get another form

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
        """Number of nodes in every cluster: [clusters]."""
        return self.ptr.diff()

    @cached_property
    def assignment(self) -> Tensor:
        """The cluster of every node: [N] int64."""
        assignment = torch.empty_like(self.order)
        assignment[self.order] = torch.arange(len(self)).repeat_interleave(self.sizes)
        return assignment

    def kept_edges(self, edges: CSR) -> float:
        """Return the share of the edges with both ends in one cluster; 1 if there are no edges."""
        inside = self.assignment[edges.col] == self.assignment.repeat_interleave(edges.rowptr.diff())
        return float(inside.double().mean()) if inside.numel() else 1.0


def cluster(edges: Tensor | CSR, num_nodes: int, count: int, method: str = "metis", seed: int = 0) -> Clusters:
    """Partition N nodes into at most `count` clusters of about equal size by one of `METHODS`; empty ones are dropped.

    "metis" cuts few edges, taken in both directions, without self-loops. "stream" (`stream_clusters`) cuts about as
    few, in less time and memory on large graphs. "random" has sizes that differ by at most one; the others' results are
    cached. `edges`: by target, or [2, E], row 0 the sources. A value out of range, or METIS failing, is an InputError.
    """
    if method not in METHODS:
        raise InputError(f"the clustering method is '{method}', expected one of {', '.join(METHODS)}")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= num_nodes:
        raise InputError(f"clusters is {count!r}, expected an integer from 1 to {num_nodes}, the nodes to be clustered")
    check_seed(seed)
    if method == "random":
        dealt = np.empty(num_nodes, np.int64)
        dealt[generator(seed, "clusters").permutation(num_nodes)] = np.arange(num_nodes) * count // num_nodes
        return clusters_of_parts(dealt, count)
    if not isinstance(edges, CSR):
        source, target = edges.cpu()
        keys = torch.unique(target * num_nodes + source)
        edges = CSR.of(torch.stack([keys % num_nodes, keys // num_nodes]), num_nodes)
    narrow = torch.int32 if num_nodes < 2**31 else torch.int64
    edges = CSR(edges.rowptr.cpu().long(), edges.col.cpu().to(narrow))
    key = f"{_VERSION} {method} {num_nodes} {edges.num_edges} {edges.checksum()} {count} {seed}"

    def cut() -> tuple[Part, bool]:
        return _by_metis(edges, count, seed) if method == "metis" else (stream_clusters(edges, count, seed), True)

    part, symmetric, path = _kept(key, num_nodes, count, cut)
    if not symmetric:
        log.warning("the graph is not symmetric: METIS clusters it with every edge in both directions")
    return clusters_of_parts(part, count, path)


def _by_metis(edges: CSR, count: int, seed: int) -> tuple[Part, bool]:
    """Return every node's cluster, and whether the graph is symmetric."""
    structure = _without_loops(edges)
    reverse = structure.T.tocsr()
    symmetric = np.array_equal(structure.indptr, reverse.indptr) and np.array_equal(structure.indices, reverse.indices)
    if not symmetric:
        structure = (structure + reverse).tocsr()
    nodes, entries = structure.shape[0], structure.nnz
    del reverse
    takes = f"a separate process takes about {size(metis.metis_bytes(nodes, entries))} of memory"
    log.info(f"METIS cuts {nodes:,} nodes and {entries // 2:,} edges into {count:,} clusters: {takes}")
    return metis.metis_clusters(structure, count, int(generator(seed, "metis").integers(2**31))), symmetric


def clusters_of_parts(part: Part, count: int, path: Path | None = None) -> Clusters:
    """Return the clusters of a method's parts: [N], from 0 to ``count`` − 1, without the empty ones."""
    sizes = np.bincount(part)
    ptr = np.concatenate([[0], sizes[sizes > 0].cumsum()])
    if (made := len(ptr) - 1) < count:
        log.warning("%d of the %d clusters are empty; they are dropped", count - made, count)
    return Clusters(torch.from_numpy(part.argsort(kind="stable")), torch.from_numpy(ptr), path)


def _without_loops(edges: CSR) -> sp.csr_matrix:
    """Return the graph as a SciPy CSR matrix [targets, sources], sorted, without self-loops and duplicates."""
    targets, size = edges.targets(), edges.num_nodes
    keep = edges.col != targets
    ends = targets[keep].numpy(), edges.col[keep].numpy()
    structure = sp.csr_matrix((np.ones(len(ends[0]), bool), ends), (size, size))
    structure.sum_duplicates()  # sorts, too
    return structure


def _kept(key: str, nodes: int, count: int, cut: Callable[[], tuple[Part, bool]]) -> tuple[Part, bool, Path | None]:
    """Return what ``cut`` returns, and its file, from the cache if it is there; ``key`` has all that decides it."""
    if (folder := cache_folder()) is None:
        return *cut(), None
    path = folder / f"clusters-{digest_of(key)[:16]}.npz"
    try:
        with np.load(path) as arrays:
            part, symmetric = arrays["part"].astype(np.int64), bool(arrays["symmetric"])
        if part.shape != (nodes,) or part.min() < 0 or part.max() >= count:
            raise InputError("is of another graph")
        return part, symmetric, path
    except OSError:  # there is none
        pass
    except Exception as error:  # damaged bytes raise anything
        log.warning("%s is damaged (%s): its clusters are computed again", path, reason(error))
    part, symmetric = cut()
    with contextlib.suppress(InputError), replacing(path) as temporary:
        np.savez(temporary, part=part.astype(np.int32), symmetric=symmetric)
    return part, symmetric, path if path.exists() else None
