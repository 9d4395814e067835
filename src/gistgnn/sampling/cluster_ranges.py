"""Graphs whose clusters are contiguous ranges of nodes, and the subgraphs of some clusters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.graphs.clustering import Clusters
from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.stored_adjacency import StoredPattern
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.sampler import Array
from gistgnn.utils.transfer import to_device

Ranges = list[tuple[int, int]]
"""Some rows of an array: the first one of each range, and the one after the last."""


class ClusterRanges(ABC):
    """A graph with its nodes in the order of its clusters; it gives the subgraph of some clusters.

    The structure is on the host, in the CSR form of `Pattern`. The mask of the training nodes is there too. y is on the
    graph's device.

    Args:
        whole: the whole graph.
        ptr: [c + 1], where each cluster begins.
        rowptr: [N + 1], where each node's edges begin.
        y: [N] or [N, K], the labels.
        train: [N], the mask of the training nodes, on the host.
        edge_data: of all edges, by name.
        alone: leave out the edges between clusters.
    """

    def __init__(
        self,
        whole: Batch,
        ptr: Array,
        rowptr: Array,
        y: Tensor,
        train: Tensor,
        edge_data: dict[str, Tensor],
        *,
        alone: bool = False,
    ) -> None:
        self.ptr, self._rowptr, self._y, self._train = ptr, rowptr, y, train
        self._edge_data, self._sparse, self._alone = edge_data, whole.is_sparse, alone
        self.device, self.clusters = whole.x.device, len(ptr) - 1
        self._cluster_of = np.arange(self.clusters, dtype=np.int32).repeat(ptr[1:] - ptr[:-1])

    @abstractmethod
    def _features(self, ranges: Ranges) -> Tensor:
        """Return the features of some nodes, on the device: [n, F]."""

    @abstractmethod
    def _sources(self, ranges: Ranges) -> Array:
        """Return the sources of some edges: [e]."""

    @abstractmethod
    def _products(self, ranges: Ranges) -> Callable[[Operator], Tensor] | None:
        """Return a function that gives the ranges' rows of Ā x of the whole graph; None: a batch has its own."""

    def batch(self, group: Array) -> Batch:
        """Return the subgraph of the clusters ``group``, ascending; nodes keep their order."""
        ranges = list(zip(self.ptr[group].tolist(), self.ptr[group + 1].tolist(), strict=True))
        pattern, data = self._induced(group, ranges)
        return Batch(
            self._features(ranges),
            pattern.to(self.device),
            joined(self._y, ranges),
            to_device(joined(self._train, ranges).nonzero().squeeze(1), self.device),
            self._products(ranges),
            self._sparse,
            edge_data={name: to_device(value, self.device) for name, value in data.items()},
        )

    def _induced(self, group: Array, ranges: Ranges) -> tuple[Pattern, dict[str, Tensor]]:
        cuts = [(int(self._rowptr[start]), int(self._rowptr[stop])) for start, stop in ranges]
        source = self._sources(cuts)
        bounds, entries = self._bounds(ranges, cuts)
        # A cluster moves as a whole from its place in the graph to its place in the batch.
        sizes = self.ptr[group + 1] - self.ptr[group]
        move = np.full(self.clusters, -len(self._cluster_of), source.dtype)  # below 0: not in the batch
        move[group] = sizes.cumsum() - sizes - self.ptr[group]
        local = source + move[self._cluster_of[source]]
        inside = local >= 0
        if self._alone:
            inside &= self._cluster_of[source] == np.repeat(group, [end - begin for begin, end in cuts])
        before = np.zeros(entries + 1, np.int64)
        np.cumsum(inside, out=before[1:])
        rowptr, col, nodes = before[bounds], local[inside], int(sizes.sum())
        dtype = index_dtype(nodes, len(col))
        pattern = Pattern(torch.from_numpy(rowptr).to(dtype), torch.from_numpy(col).to(dtype), (nodes, nodes))
        return pattern, {name: joined(value, cuts)[inside] for name, value in self._edge_data.items()}

    def _bounds(self, ranges: Ranges, cuts: Ranges) -> tuple[Array, int]:
        """Return where the edges of each node of the ranges begin and end among these nodes' edges, and their number.

        ``cuts`` are the ranges of these edges.
        """
        bounds, before = [np.zeros(1, np.int64)], 0
        for (start, stop), (begin, end) in zip(ranges, cuts, strict=True):
            bounds.append(self._rowptr[start + 1 : stop + 1] + (before - begin))
            before += end - begin
        return np.concatenate(bounds), before


class Renumbered(ClusterRanges):
    """A copy of a graph in memory, with its nodes in the order of its clusters. The graph itself is not held.

    The edges into a node keep their order, so that its row of Ā x has the same bits as in the graph.

    Args:
        whole: the graph.
        clusters: of it.
        precompute: see `gistgnn.sampling.ClusterSampling`.
        share: see `Sampling.sampler`.
    """

    def __init__(self, whole: Batch, clusters: Clusters, *, precompute: bool, share: Share = unshared) -> None:
        self._precompute, self._aggregated = precompute, dict[Operator, Tensor]()
        copy = share(lambda: _renumbered(whole, clusters))
        self.x, self._col = copy["x"], copy["col"].numpy()
        data = {name: copy[name] for name in whole.edge_data}
        super().__init__(whole, clusters.ptr.numpy(), copy["rowptr"].numpy(), copy["y"], copy["train"], data)

    def _features(self, ranges: Ranges) -> Tensor:
        return joined(self.x, ranges)

    def _sources(self, ranges: Ranges) -> Array:
        return np.concatenate([self._col[begin:end] for begin, end in ranges])

    def _products(self, ranges: Ranges) -> Callable[[Operator], Tensor] | None:
        """Ā x is computed once for the whole graph, at the first call of what this returns."""
        if not self._precompute:
            return None
        ready = {operator: joined(product, ranges) for operator, product in self._aggregated.items()}

        def product(operator: Operator) -> Tensor:
            if operator not in self._aggregated:
                self._aggregated[operator] = self._adjacency().aggregate(operator, self.x)
            return ready[operator] if operator in ready else joined(self._aggregated[operator], ranges)

        return product

    def _adjacency(self) -> Adjacency:
        """Return the structure of the whole graph. Nothing holds it, nor its operators: they take much memory."""
        rowptr, col, nodes = torch.from_numpy(self._rowptr), torch.from_numpy(self._col), len(self.x)
        dtype = index_dtype(nodes, len(col))
        pattern = Pattern(rowptr.to(dtype), col.to(dtype), (nodes, nodes)).to(self.device)
        weight = self._edge_data.get("edge_weight")
        return Adjacency.from_pattern(pattern, self.x.dtype, None if weight is None else weight.to(self.device))


class StoredRanges(ClusterRanges):
    """A graph in a folder of clusters: features and edges are read from its files.

    Args:
        whole: the graph; its features are `StoredFeatures`, and it has `Batch.cluster_ptr`.
        precompute: see `gistgnn.sampling.ClusterSampling`.
        alone: leave out the edges between clusters.
    """

    def __init__(self, whole: Batch, *, precompute: bool, alone: bool = False) -> None:
        assert isinstance(whole.x, StoredFeatures)
        assert isinstance(whole.edges, StoredPattern)
        assert whole.cluster_ptr is not None
        self._whole, self._precompute = whole, precompute
        self._x, self._edges = whole.x, whole.edges
        self._aggregated: dict[Operator, StoredFeatures] = {}
        train = torch.zeros(len(whole.x), dtype=torch.bool)
        train[whole.loss_nodes.cpu()] = True
        rowptr = whole.edges.rowptr.numpy()
        ptr, data = whole.cluster_ptr.numpy(), dict(whole.edge_data)
        super().__init__(whole, ptr, rowptr, whole.y, train, data, alone=alone)

    def _features(self, ranges: Ranges) -> Tensor:
        return self._x.ranges(ranges)

    def _sources(self, ranges: Ranges) -> Array:
        return self._edges.columns(ranges).numpy()

    def _products(self, ranges: Ranges) -> Callable[[Operator], Tensor] | None:
        """Ā x is in a file of the folder; at the first call of what this returns it is computed, if it is missing."""
        if not self._precompute:
            return None
        ready = {operator: product.ranges(ranges) for operator, product in self._aggregated.items()}

        def product(operator: Operator) -> Tensor:
            if operator not in self._aggregated:
                whole = self._whole.adj.aggregate(operator, self._x)
                assert isinstance(whole, StoredFeatures)
                self._aggregated[operator] = whole
            return ready[operator] if operator in ready else self._aggregated[operator].ranges(ranges)

        return product


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


def joined(values: Tensor, ranges: Ranges) -> Tensor:
    """Return the rows of some ranges, one after another."""
    return torch.cat([values[start:stop] for start, stop in ranges])
