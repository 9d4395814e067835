"""`EdgesOnGPU`: batches of clusters that a GPU makes of its own copy of the edges."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.graphs import CSR
from gistgnn.graphs.csr import index_dtype
from gistgnn.utils.tensors import Array, to_device

# Ranges of rows of an array: the first row of each, and the one after its last.
Ranges = list[tuple[int, int]]

# Batches of later epochs may have so many times the edges of the largest one of the first epoch.
_EDGE_MARGIN = 1.1
# Up to so many clusters the numbers of edges between them are a dense matrix.
_MOST_IN_DENSE = 2048


def ranges_of(starts: Array, group: Array) -> Ranges:
    """Return the ranges of some clusters, given where every cluster begins: [c + 1]."""
    return list(zip(starts[group].tolist(), starts[group + 1].tolist(), strict=True))


def join_ranges(values: Tensor, ranges: Ranges) -> Tensor:
    """Return the rows of some ranges, one after another."""
    return torch.cat([values[start:stop] for start, stop in ranges])


@dataclass(frozen=True)
class EdgesOnGPU:
    """Edges on a GPU, in the order of their clusters.

    Batches of them are made there, without waiting for the GPU. What a mask selects has a size that
    only the GPU knows. Here the host knows it beforehand: it has the number of edges between any
    two clusters.
    """

    rowptr: Tensor  # [N + 1], on the GPU
    col: Tensor  # [E], on the GPU
    cluster_of: Tensor  # [N], on the GPU
    first_nodes: Array  # [c + 1], where every cluster begins
    first_edges: Array  # [c + 1], where the edges into its nodes begin
    # [c, c], how many edges go from the cluster of the column into that of the row.
    edges_between: "sp.csr_matrix | Array"
    loops: Array  # [c], edges from a node to itself

    @classmethod
    def of(
        cls, rowptr: Array, col: Array, ptr: Array, cluster_of: Array, device: torch.device
    ) -> "EdgesOnGPU":
        """Bring edges to a GPU, and count those between clusters."""
        clusters = len(ptr) - 1
        first_edges = rowptr[ptr].astype(np.int64)
        sources = cluster_of[col]
        between: sp.csr_matrix | Array
        if clusters <= _MOST_IN_DENSE:
            pairs = sources + clusters * np.arange(clusters).repeat(np.diff(first_edges))
            between = np.bincount(pairs, minlength=clusters**2).reshape(clusters, clusters)
        else:
            between = sp.csr_matrix(
                (np.ones(len(col), np.int32), sources, first_edges), (clusters, clusters)
            )
            between.sum_duplicates()
        targets = np.arange(len(rowptr) - 1, dtype=col.dtype).repeat(np.diff(rowptr))
        loops = np.bincount(sources[targets == col], minlength=clusters)
        return cls(
            rowptr=torch.from_numpy(rowptr).to(device),
            col=torch.from_numpy(col).to(device),
            cluster_of=torch.from_numpy(cluster_of).to(device),
            first_nodes=ptr,
            first_edges=first_edges,
            edges_between=between,
            loops=loops,
        )

    def cuts(self, group: Array) -> Ranges:
        """Return the ranges of the edges into the nodes of some clusters."""
        return ranges_of(self.first_edges, group)

    def induced(self, group: Array, *, alone: bool) -> tuple[CSR, Tensor]:
        """Return the edges between the nodes of some clusters, renumbered.

        Also returns their places among all edges into these nodes.

        Args:
            group: the clusters, ascending.
            alone: edges between different clusters are left out.
        """
        device = self.col.device
        node_counts = self.first_nodes[group + 1] - self.first_nodes[group]
        edge_counts = self.first_edges[group + 1] - self.first_edges[group]
        nodes = int(node_counts.sum())
        edges = int(edge_counts.sum())
        inside_count = self._count(group, alone=alone)
        # A cluster moves as a whole from its place in the graph to its place in the batch. Nodes of
        # other clusters get numbers below 0.
        node_shifts = np.full(len(self.first_nodes) - 1, -len(self.cluster_of), np.int64)
        node_shifts[group] = node_counts.cumsum() - node_counts - self.first_nodes[group]
        edge_shifts = edge_counts.cumsum() - edge_counts - self.first_edges[group]
        # One copy to the GPU for all numbers.
        numbers = np.concatenate([node_shifts, edge_shifts, node_counts, edge_counts, group])
        sizes = [len(node_shifts), *[len(group)] * 4]
        node_shift, edge_shift, nodes_in, edges_into, cluster_numbers = to_device(
            torch.from_numpy(numbers), device
        ).split(sizes)

        source = join_ranges(self.col, self.cuts(group))
        cluster = self.cluster_of.index_select(0, source)
        local = node_shift.index_select(0, cluster).add_(source)
        inside = local >= 0
        if alone:
            inside &= cluster == cluster_numbers.repeat_interleave(edges_into, output_size=edges)
        # How many edges of the batch come before each of these edges.
        before = torch.nn.functional.pad(inside.cumsum(0), (1, 0))
        # The edges that are not in the batch share one place, at the end.
        new_places = torch.where(inside, before[:-1], inside_count)
        places = new_places.new_empty(inside_count + 1)
        places.scatter_(0, new_places, torch.arange(edges, device=device))
        places = places[:inside_count]

        node_ranges = ranges_of(self.first_nodes, group)
        # The ends of each node's edges among those into the batch's nodes.
        ends = join_ranges(self.rowptr, [(start + 1, stop + 1) for start, stop in node_ranges])
        ends = ends.long()
        ends += edge_shift.repeat_interleave(nodes_in, output_size=nodes)
        rowptr = torch.cat([before[:1], before.index_select(0, ends)])
        dtype = index_dtype(nodes, inside_count)
        col = local.index_select(0, places).to(dtype)
        return CSR(rowptr.to(dtype), col, (nodes, nodes), int(self.loops[group].sum())), places

    def _count(self, group: Array, *, alone: bool) -> int:
        """Return the number of edges between the nodes of some clusters."""
        if isinstance(self.edges_between, np.ndarray):
            between = self.edges_between[np.ix_(group, group)]
        else:
            between = self.edges_between[group][:, group]
        return int((between.diagonal() if alone else between).sum())

    def largest(self, groups: Iterable[Array], *, alone: bool) -> tuple[int, int] | None:
        """Return the most nodes of a batch, and about the most edges, for batches like these.

        Returns None if there are edges from a node to itself. Some layers replace them, and how
        many a batch has varies.
        """
        if self.loops.any():
            return None
        batches = list(groups)
        sizes = np.sort(np.diff(self.first_nodes))[::-1]
        edges = max(self._count(np.sort(group), alone=alone) for group in batches)
        return int(sizes[: max(map(len, batches))].sum()), int(_EDGE_MARGIN * edges)
