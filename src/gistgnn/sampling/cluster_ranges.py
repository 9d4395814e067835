"""A graph whose clusters are contiguous ranges of nodes, and the subgraphs of some clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.graphs import CSR
from gistgnn.graphs.clustering import Clusters
from gistgnn.graphs.csr import check_sources, index_dtype
from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.sampler import Array
from gistgnn.utils.transfer import to_device

Ranges = list[tuple[int, int]]
"""Some rows of an array: the first one of each range, and the one after the last."""


class ClusterRanges:
    """A graph with its nodes in the order of its clusters; it gives the subgraph of some clusters.

    Args:
        whole: the graph. Its features and edges may be mapped from files, and are read range by range.
        ptr: [c + 1], where each cluster begins.
        precompute: see `gistgnn.sampling.ClusterSampling`.
        alone: leave out the edges between clusters.
    """

    def __init__(self, whole: Batch, ptr: Tensor, *, precompute: bool, alone: bool = False) -> None:
        assert isinstance(whole.edges, CSR)
        self.ptr, self.device, self.clusters = ptr.numpy(), whole.device, len(ptr) - 1
        self._whole, self._precompute, self._alone = whole, precompute, alone
        self._rowptr, self._col = whole.edges.rowptr.cpu().numpy(), whole.edges.col.cpu().numpy()
        self._cluster_of = np.arange(self.clusters, dtype=np.int32).repeat(np.diff(self.ptr))
        self._train = torch.zeros(len(whole.x), dtype=torch.bool)  # counting nodes on a GPU would wait for it
        self._train[whole.loss_nodes.cpu()] = True
        self._aggregated: dict[Operator, Tensor] = {}

    @classmethod
    def renumbered(
        cls, whole: Batch, clusters: Clusters, *, precompute: bool, share: Share = unshared
    ) -> ClusterRanges:
        """Return a copy of a graph, with its nodes in the order of its clusters. The graph itself is not held.

        The edges into a node keep their order, so that its row of Ā x has the same bits as in the graph.

        Args:
            whole: the graph.
            clusters: of it.
            precompute: see above.
            share: see `Sampling.sampler`.
        """
        copy = share(lambda: _renumbered(whole, clusters))
        data = {name: copy[name] for name in whole.edge_data}
        edges, nodes = CSR(copy["rowptr"], copy["col"]), copy["train"].nonzero().squeeze(1)
        same = Batch(copy["x"], edges, copy["y"], nodes, sparse=whole.is_sparse, edge_data=data)
        return cls(same, clusters.ptr, precompute=precompute)

    def batch(self, group: Array) -> Batch:
        """Return the subgraph of the clusters ``group``, ascending; nodes keep their order."""
        ranges = list(zip(self.ptr[group].tolist(), self.ptr[group + 1].tolist(), strict=True))
        pattern, data = self._induced(group, ranges)
        return Batch(
            self._features(self._whole.x, ranges),
            pattern.to(self.device),
            joined(self._whole.y, ranges),
            to_device(joined(self._train, ranges).nonzero().squeeze(1), self.device),
            self._products(ranges),
            self._whole.is_sparse,
            edge_data={name: to_device(value, self.device) for name, value in data.items()},
        )

    def _features(self, x: Tensor, ranges: Ranges) -> Tensor:
        return to_device(joined(x, ranges).to(self._whole.dtype), self.device)

    def _products(self, ranges: Ranges) -> Callable[[Operator], Tensor] | None:
        """Return a function that gives the ranges' rows of Ā x of the whole graph; None: a batch has its own.

        The whole product is computed once, at the function's first call.
        """
        if not self._precompute:
            return None
        ready = {operator: self._features(product, ranges) for operator, product in self._aggregated.items()}

        def product(operator: Operator) -> Tensor:
            if operator not in self._aggregated:
                self._aggregated[operator] = self._product(operator)
            return ready[operator] if operator in ready else self._features(self._aggregated[operator], ranges)

        return product

    def _product(self, operator: Operator) -> Tensor:
        """Return Ā x. In memory, nothing holds the whole graph's operators afterwards: they take much memory."""
        whole = self._whole
        if whole.product is not None:
            return whole.product(operator)
        assert isinstance(whole.edges, CSR)
        edges, weight = whole.edges.for_products().to(self.device), whole.edge_data.get("edge_weight")
        adj = Adjacency.from_csr(edges, whole.dtype, None if weight is None else weight.to(self.device))
        return adj.aggregate(operator, whole.x)

    def _induced(self, group: Array, ranges: Ranges) -> tuple[CSR, dict[str, Tensor]]:
        cuts = [(int(self._rowptr[start]), int(self._rowptr[stop])) for start, stop in ranges]
        source = np.concatenate([self._col[begin:end] for begin, end in cuts])
        if self._whole.is_stored:
            check_sources(torch.from_numpy(source), len(self._cluster_of))
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
        pattern = CSR(torch.from_numpy(rowptr).to(dtype), torch.from_numpy(col).to(dtype))
        return pattern, {name: joined(value, cuts)[inside] for name, value in self._whole.edge_data.items()}

    def _bounds(self, ranges: Ranges, cuts: Ranges) -> tuple[Array, int]:
        """Return where the edges of each node of the ranges begin and end among these nodes' edges, and their number.

        ``cuts`` are the ranges of these edges.
        """
        bounds, before = [np.zeros(1, np.int64)], 0
        for (start, stop), (begin, end) in zip(ranges, cuts, strict=True):
            bounds.append(self._rowptr[start + 1 : stop + 1] + (before - begin))
            before += end - begin
        return np.concatenate(bounds), before


def _renumbered(whole: Batch, clusters: Clusters) -> dict[str, Tensor]:
    nodes, order = whole.x.shape[0], clusters.order.to(whole.x.device)
    train = torch.zeros(nodes, dtype=torch.bool, device=order.device)
    train[whole.loss_nodes] = True
    pattern = whole.csr
    entries = np.arange(pattern.num_edges) if whole.edge_data else np.ones(pattern.num_edges, np.int8)
    rows = sp.csr_matrix((entries, pattern.col.numpy(), pattern.rowptr.numpy()), pattern.shape)[clusters.order.numpy()]
    place = np.empty(nodes, rows.indices.dtype)
    place[clusters.order.numpy()] = np.arange(nodes)
    return {
        "x": whole.x.index_select(0, order).to(whole.dtype),
        "y": whole.y.index_select(0, order),
        "train": train.index_select(0, order).cpu(),
        "rowptr": torch.from_numpy(rows.indptr),
        "col": torch.from_numpy(place[rows.indices]),
        **{name: value.cpu()[torch.from_numpy(rows.data)] for name, value in whole.entry_data.items()},
    }


def joined(values: Tensor, ranges: Ranges) -> Tensor:
    """Return the rows of some ranges, one after another."""
    return torch.cat([values[start:stop] for start, stop in ranges])
