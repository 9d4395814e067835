"""Unions of random clusters as batches, after Cluster-GCN (section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.clustering import METHODS, Clusters, cluster
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.sampling.batch import Batch, Share, alone
from gistgnn.sampling.drawn import Array, DrawnBatches, Sampling, check_count
from gistgnn.sampling.expected import Expected, Sizes

# Share of the edges that lie inside METIS clusters of a few hundred nodes, as on our synthetic Amazon2M.
METIS_INSIDE = 0.6


@dataclass(frozen=True)
class ClusterSampling(Sampling):
    """Training by clusters.

    Args:
        clusters: c, into how many the graph is cut.
        clusters_per_batch: q.
        method: "metis", which cuts few edges, or "random", to compare with.
        batches: see `Sampling`.
        precompute: the first layer sums over all of the graph's edges, not only the batch's: ĀX is computed once, as
            in Cluster-GCN. It holds for the models of `gistgnn.nn` that sum x itself; others do not notice.

    Raises:
        InputError: a value out of its range; c is compared with the graph's nodes by `sampler`.
    """

    name = "clusters"

    clusters: int
    clusters_per_batch: int = 10
    method: str = "metis"
    precompute: bool = True

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        for name in ("clusters", "clusters_per_batch"):
            check_count(name, getattr(self, name))
        if self.clusters_per_batch > self.clusters:
            raise InputError(
                f"clusters_per_batch is {self.clusters_per_batch}, more than the {self.clusters} clusters there are: "
                f"expected 1 to {self.clusters}"
            )
        if self.method not in METHODS:
            raise InputError(f"method is '{self.method}', expected one of {', '.join(METHODS)}")

    def sampler(self, whole: Batch, seed: int, share: Share = alone, layers: int | None = None) -> ClusterBatches:
        """Cluster a graph, or find its clusters in the cache, and return the sampler; see `cluster` and there.

        Raises:
            InputError: more clusters than nodes, or METIS failed.
        """

        def make() -> dict[str, Tensor]:
            found = cluster(whole.edge_index, whole.x.shape[0], self.clusters, self.method, seed)
            return {"order": found.order, "ptr": found.ptr}

        found = share(make)
        return ClusterBatches(
            whole,
            Clusters(found["order"], found["ptr"]),
            self.clusters_per_batch,
            seed,
            independent=self.batches == "independent",
            precompute=self.precompute,
            share=share,
        )

    def expected(self, graph: Sizes, layers: int) -> Expected:
        """Count q/c of the nodes, the edges inside their clusters, and the edges between clusters of the same batch.

        A share `METIS_INSIDE` of the edges is taken to lie inside clusters, or 1/c where clusters are random.
        """
        c, q = self.clusters, self.clusters_per_batch
        inside = METIS_INSIDE if self.method == "metis" and c > 1 else 1 / c
        both = (q - 1) / (c - 1) if c > 1 else 0.0
        edges = graph.edges * q / c * (inside + (1 - inside) * both)
        return Expected.subgraph(graph, graph.nodes * q / c, edges, steps=-(-c // q), precomputed=self.precompute)


class ClusterBatches(DrawnBatches):
    """Batches that are the induced subgraphs of ``per_batch`` random clusters, edges between the clusters included.

    An epoch is a random permutation of the clusters, cut into ceil(c / q) groups of q; the last one is what is left.
    The permutation follows from (seed, epoch), so that a batch follows from its step alone. A batch holds all nodes of
    its clusters: those outside every split pass messages. It may hold no training node (see `gistgnn.subtrain`).

    The graph is copied once, renumbered so that every cluster is a contiguous range; a batch is then made of slices,
    in a thread that works two batches ahead.

    Args:
        whole: the whole graph, on the device where the models run.
        clusters: its partition.
        per_batch: q, from 1 to the number of clusters asked for; METIS may have made fewer.
        seed: of the order of the clusters.
        independent: every sub-GCN draws an order of its own; otherwise all draw the same one (the default, as in the
            authors' experiments).
        precompute: as in `ClusterSampling`.
        share: gives the copy of the graph that is made.

    Raises:
        InputError: q < 1, or clusters of another graph.
    """

    def __init__(
        self,
        whole: Batch,
        clusters: Clusters,
        per_batch: int,
        seed: int = 0,
        *,
        independent: bool = False,
        precompute: bool = True,
        share: Share = alone,
    ) -> None:
        nodes = whole.x.shape[0]
        if per_batch < 1:
            raise InputError(f"clusters_per_batch is {per_batch}, expected an integer >= 1")
        if clusters.order.numel() != nodes:
            raise InputError(f"the clusters are of {clusters.order.numel()} nodes, the graph has {nodes}")
        self.steps_per_epoch = -(-len(clusters) // per_batch)
        super().__init__(seed, independent=independent)
        self._per_batch = per_batch
        self._graph = Renumbered(whole, clusters, precompute=precompute, share=share)

    def _drawn(self, first_step: int, steps: int) -> Iterator[Array]:
        """The clusters of every batch, ascending."""
        return (np.sort(group) for _, group in self._shuffled(self._graph.clusters, self._per_batch, first_step, steps))

    def _make(self, group: Array) -> Batch:
        return self._graph.batch(group)


class Renumbered:
    """A graph whose nodes are in the order of its clusters, and the union of some clusters cut out of it.

    The structure stays on the host, in the CSR form of `Pattern`: ``rowptr`` [N + 1], ``col`` [E]. x, y and the mask
    of the training nodes are where the whole graph's are.
    """

    def __init__(self, whole: Batch, clusters: Clusters, *, precompute: bool, share: Share = alone) -> None:
        self._whole, self._order = (whole if precompute else None), clusters.order
        self._products: dict[Operator, Tensor] = {}
        self._sparse = whole.is_sparse
        self.clusters = len(clusters)
        self.ptr = clusters.ptr.numpy()
        found = share(lambda: _renumbered(whole, clusters))
        self.x, self.y, self.train = found["x"], found["y"], found["train"]
        self.rowptr, self.col = found["rowptr"].numpy(), found["col"].numpy()
        self.cluster_of = np.arange(self.clusters, dtype=np.int32).repeat(self.ptr[1:] - self.ptr[:-1])

    def batch(self, group: Array) -> Batch:
        """The subgraph that the clusters ``group``, ascending, induce; nodes keep their order."""
        ranges = list(zip(self.ptr[group].tolist(), self.ptr[group + 1].tolist(), strict=True))
        pattern = self._induced(group, ranges)
        mask = _joined(self.train, ranges)
        return Batch(
            _joined(self.x, ranges),
            pattern.to(self.x.device),
            _joined(self.y, ranges),
            mask.nonzero().squeeze(1),
            self._product(ranges) if self._whole else None,
            self._sparse,
        )

    def _product(self, ranges: list[tuple[int, int]]) -> Callable[[Operator], Tensor]:
        """Give the rows in the ranges of the whole graph's products with x, which are computed when first asked for."""
        ready = {operator: _joined(product, ranges) for operator, product in self._products.items()}

        def product(operator: Operator) -> Tensor:
            if operator not in self._products:
                assert self._whole is not None
                matrix: SparseMatrix = getattr(self._whole.adj, operator)
                self._products[operator] = (matrix @ self._whole.x).index_select(0, self._order.to(self.x.device))
            return ready[operator] if operator in ready else _joined(self._products[operator], ranges)

        return product

    def _induced(self, group: Array, ranges: list[tuple[int, int]]) -> Pattern:
        source, bounds, entries = self._rows(ranges)
        # A cluster moves as a whole from its place in the graph to its place in the batch.
        sizes = self.ptr[group + 1] - self.ptr[group]
        move = np.full(self.clusters, -len(self.cluster_of), source.dtype)  # to below 0: not in the batch
        move[group] = sizes.cumsum() - sizes - self.ptr[group]
        local = source + move[self.cluster_of[source]]
        inside = local >= 0
        before = np.zeros(entries + 1, np.int64)
        np.cumsum(inside, out=before[1:])
        rowptr, col, nodes = before[bounds], local[inside], int(sizes.sum())
        dtype = index_dtype(nodes, len(col))
        return Pattern(torch.from_numpy(rowptr).to(dtype), torch.from_numpy(col).to(dtype), (nodes, nodes))

    def _rows(self, ranges: list[tuple[int, int]]) -> tuple[Array, Array, int]:
        """The entries of the nodes in the ranges, where each node's begin among them (and the last ends), how many."""
        cuts = [(int(self.rowptr[start]), int(self.rowptr[stop])) for start, stop in ranges]
        source = np.concatenate([self.col[begin:end] for begin, end in cuts])
        bounds, before = [np.zeros(1, np.int64)], 0
        for (start, stop), (begin, end) in zip(ranges, cuts, strict=True):
            bounds.append(self.rowptr[start + 1 : stop + 1] + (before - begin))
            before += end - begin
        return source, np.concatenate(bounds), before


def _renumbered(whole: Batch, clusters: Clusters) -> dict[str, Tensor]:
    nodes, order = whole.x.shape[0], clusters.order.to(whole.x.device)
    train = torch.zeros(nodes, dtype=torch.bool, device=order.device)
    train[whole.loss_nodes] = True
    pattern = whole.adj.pattern.to(torch.device("cpu"))
    entries = np.ones(pattern.nnz, np.int8)
    rows = sp.csr_matrix((entries, pattern.col.numpy(), pattern.rowptr.numpy()), pattern.shape)[clusters.order.numpy()]
    place = np.empty(nodes, rows.indices.dtype)
    place[clusters.order.numpy()] = np.arange(nodes)
    return {
        "x": whole.x.index_select(0, order),
        "y": whole.y.index_select(0, order),
        "train": train.index_select(0, order),
        "rowptr": torch.from_numpy(rows.indptr),
        "col": torch.from_numpy(place[rows.indices]),
    }


def _joined(values: Tensor, ranges: list[tuple[int, int]]) -> Tensor:
    return torch.cat([values[start:stop] for start, stop in ranges])
