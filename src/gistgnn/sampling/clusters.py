"""Batches that are unions of random clusters, after Cluster-GCN (section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.clustering import METHODS, Clusters, cluster
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.expected import Expected
from gistgnn.sampling.sampler import Array, RandomBatches, Sampling
from gistgnn.utils.checks import check_count, check_flag, shown
from gistgnn.utils.transfer import to_device

# Share of the edges that lie inside METIS clusters of a few hundred nodes, as on our synthetic Amazon2M.
METIS_INSIDE = 0.6


@dataclass(frozen=True)
class ClusterSampling(Sampling):
    """Training by clusters.

    Args:
        clusters: c, the number of clusters.
        clusters_per_batch: q.
        method: "metis", which cuts few edges, or "random", for comparison.
        batches: see `Sampling`.
        precompute: the first layer sums over all of the graph's edges, not only the batch's: ĀX is computed once, as
            in Cluster-GCN. In the paper a batch sees its own edges alone (section 2.2). Only models of
            `gistgnn.nn` whose first layer sums x itself use it.

    Raises:
        InputError: a value out of its range; `sampler` compares c with the graph's nodes.
    """

    name = "clusters"
    counts = ("clusters", "clusters_per_batch")

    clusters: int
    clusters_per_batch: int = 10
    method: str = "metis"
    precompute: bool = True

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        if self.clusters_per_batch > self.clusters:
            raise InputError(
                f"clusters_per_batch is {self.clusters_per_batch}, more than the {self.clusters} clusters there are: "
                f"expected 1 to {self.clusters}"
            )
        check_flag("precompute", self.precompute)
        if self.method not in METHODS:
            raise InputError(f"method is {shown(self.method)}, expected one of {', '.join(METHODS)}")

    def sampler(self, whole: Batch, seed: int, share: Share = unshared, layers: int | None = None) -> ClusterBatches:
        """Cluster a graph, or read its clusters from the cache, and return the sampler; see `Sampling.sampler`.

        Raises:
            InputError: more clusters than nodes, or METIS failed.
        """

        def compute() -> dict[str, Tensor]:
            clusters = cluster(whole.csr, whole.x.shape[0], self.clusters, self.method, seed)
            return {"order": clusters.order, "ptr": clusters.ptr}

        shared, options = share(compute), {"independent": self.independent, "precompute": self.precompute}
        clusters = Clusters(shared["order"], shared["ptr"])
        return ClusterBatches(whole, clusters, self.clusters_per_batch, seed, **options, share=share)

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count q/c of the nodes, the edges inside their clusters, and the edges between clusters of the same batch.

        A share `METIS_INSIDE` of the edges is taken to lie inside clusters, or 1/c where clusters are random.
        """
        c, q = self.clusters, self.clusters_per_batch
        inside = METIS_INSIDE if self.method == "metis" and c > 1 else 1 / c
        both = (q - 1) / (c - 1) if c > 1 else 0.0
        edges = graph.edges * q / c * (inside + (1 - inside) * both)
        return Expected.subgraph(graph, graph.nodes * q / c, edges, steps=-(-c // q), precomputed=self.precompute)


class ClusterBatches(RandomBatches):
    """Batches of ``per_batch`` random clusters: all their nodes, and all edges between these.

    An epoch is a random permutation of the clusters, cut into ceil(c / q) groups of q; the last group may be smaller.
    The permutation follows from (seed, epoch), so that a batch follows from its step alone. Nodes outside every split
    pass messages like the others. A batch may hold no training node (see `gistgnn.subtrain`).

    The graph is copied once and renumbered, so that every cluster is a contiguous range and a batch is made of slices.

    Args:
        whole: the whole graph, on the device where the models run.
        clusters: its partition.
        per_batch: q, from 1 to the number of clusters that was asked for; METIS may have made fewer.
        seed: of the order of the clusters.
        independent: see `Sampling`.
        precompute: see `ClusterSampling`.
        share: see `Sampling.sampler`.

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
        share: Share = unshared,
    ) -> None:
        nodes = whole.x.shape[0]
        check_count("clusters_per_batch", per_batch)
        if clusters.order.numel() != nodes:
            raise InputError(f"the clusters are of {clusters.order.numel()} nodes, the graph has {nodes}")
        self.steps_per_epoch = -(-len(clusters) // per_batch)
        super().__init__(seed, independent=independent)
        self._per_batch = per_batch
        self._graph = Renumbered(whole, clusters, precompute=precompute, share=share)

    def _drawn(self, first_step: int, steps: int) -> Iterator[Array]:
        """Yield the clusters of every batch, ascending."""
        return (np.sort(group) for _, group in self._shuffled(self._graph.clusters, self._per_batch, first_step, steps))

    def _make(self, group: Array) -> Batch:
        return self._graph.batch(group)


class Renumbered:
    """A copy of a graph with its nodes in the order of its clusters; it gives the subgraph of some clusters.

    The structure stays on the host, in the CSR form of `Pattern`: ``rowptr`` [N + 1], ``col`` [E]. The mask of
    the training nodes is there too. x and y are on the graph's device.
    """

    def __init__(self, whole: Batch, clusters: Clusters, *, precompute: bool, share: Share = unshared) -> None:
        self._whole, self._order = (whole if precompute else None), clusters.order
        self._products: dict[Operator, Tensor] = {}
        self._sparse = whole.is_sparse
        self.clusters = len(clusters)
        self.ptr = clusters.ptr.numpy()
        copy = share(lambda: _renumbered(whole, clusters))
        self.x, self.y, self.train = copy["x"], copy["y"], copy["train"]
        self.rowptr, self.col = copy["rowptr"].numpy(), copy["col"].numpy()
        self._edge_data = {name: copy[name] for name in whole.edge_data}
        self.cluster_of = np.arange(self.clusters, dtype=np.int32).repeat(self.ptr[1:] - self.ptr[:-1])

    def batch(self, group: Array) -> Batch:
        """Return the subgraph of the clusters ``group``, ascending; nodes keep their order."""
        ranges = list(zip(self.ptr[group].tolist(), self.ptr[group + 1].tolist(), strict=True))
        pattern, data = self._induced(group, ranges)
        return Batch(
            _joined(self.x, ranges),
            pattern.to(self.x.device),
            _joined(self.y, ranges),
            to_device(_joined(self.train, ranges).nonzero().squeeze(1), self.x.device),
            self._product(ranges) if self._whole else None,
            self._sparse,
            edge_data={name: to_device(value, self.x.device) for name, value in data.items()},
        )

    def _product(self, ranges: list[tuple[int, int]]) -> Callable[[Operator], Tensor]:
        """Return a function that gives the ranges' rows of Ā x, computed once for the whole graph at the first call."""
        ready = {operator: _joined(product, ranges) for operator, product in self._products.items()}

        def product(operator: Operator) -> Tensor:
            if operator not in self._products:
                assert self._whole is not None
                matrix: SparseMatrix = getattr(self._whole.adj, operator)
                self._products[operator] = (matrix @ self._whole.x).index_select(0, self._order.to(self.x.device))
            return ready[operator] if operator in ready else _joined(self._products[operator], ranges)

        return product

    def _induced(self, group: Array, ranges: list[tuple[int, int]]) -> tuple[Pattern, dict[str, Tensor]]:
        cuts = [(int(self.rowptr[start]), int(self.rowptr[stop])) for start, stop in ranges]
        source, bounds, entries = self._rows(ranges, cuts)
        # A cluster moves as a whole from its place in the graph to its place in the batch.
        sizes = self.ptr[group + 1] - self.ptr[group]
        move = np.full(self.clusters, -len(self.cluster_of), source.dtype)  # below 0: not in the batch
        move[group] = sizes.cumsum() - sizes - self.ptr[group]
        local = source + move[self.cluster_of[source]]
        inside = local >= 0
        before = np.zeros(entries + 1, np.int64)
        np.cumsum(inside, out=before[1:])
        rowptr, col, nodes = before[bounds], local[inside], int(sizes.sum())
        dtype = index_dtype(nodes, len(col))
        pattern = Pattern(torch.from_numpy(rowptr).to(dtype), torch.from_numpy(col).to(dtype), (nodes, nodes))
        return pattern, {name: _joined(value, cuts)[inside] for name, value in self._edge_data.items()}

    def _rows(self, ranges: list[tuple[int, int]], cuts: list[tuple[int, int]]) -> tuple[Array, Array, int]:
        """Return the sources of all edges into the ranges, where each node's edges begin and end, and their number.

        ``cuts`` are the ranges of these edges.
        """
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
    entries = np.arange(pattern.nnz) if whole.edge_data else np.ones(pattern.nnz, np.int8)
    rows = sp.csr_matrix((entries, pattern.col.numpy(), pattern.rowptr.numpy()), pattern.shape)[clusters.order.numpy()]
    place = np.empty(nodes, rows.indices.dtype)
    place[clusters.order.numpy()] = np.arange(nodes)
    return {
        "x": whole.x.index_select(0, order),
        "y": whole.y.index_select(0, order),
        "train": train.index_select(0, order).cpu(),  # counting nodes on a GPU would wait for it
        "rowptr": torch.from_numpy(rows.indptr),
        "col": torch.from_numpy(place[rows.indices]),
        **{name: value.cpu()[torch.from_numpy(rows.data)] for name, value in whole.entry_data.items()},
    }


def _joined(values: Tensor, ranges: list[tuple[int, int]]) -> Tensor:
    return torch.cat([values[start:stop] for start, stop in ranges])
