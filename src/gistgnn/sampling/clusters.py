"""Batches that are unions of random clusters, after Cluster-GCN (section 2.2)."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs import CSR, clustering
from gistgnn.graphs.clustering import (
    METHODS,
    Clusters,
    cluster,
    entropy_share,
    first_batch,
    first_cut,
)
from gistgnn.graphs.csr import check_sources, index_dtype
from gistgnn.graphs.features import rows_of
from gistgnn.graphs.named import GraphSizes
from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.edges_on_gpu import EdgesOnGPU, Ranges, join_ranges, ranges_of
from gistgnn.sampling.sampler import Expected, RandomBatches, Sampling, expected_batch
from gistgnn.storage.record import BatchFacts
from gistgnn.storage.tensors import read_ahead
from gistgnn.utils.checks import AtLeastOne, check_choice, check_count
from gistgnn.utils.tensors import Array, to_device

log = logging.getLogger(__name__)

WHOLE_GRAPH = 2000  # nodes of a graph that is trained on as a whole, about those of a batch
# The share of the edges inside METIS clusters of a few hundred nodes, as on our synthetic Amazon2M.
METIS_INSIDE = 0.6


@dataclass(frozen=True)
class ClusterSampling(Sampling):
    """Training by clusters.

    Args:
        clusters: c, the number of clusters. Defaults to those of the graph's folder, or to as many
            as batches of about 2,000 nodes need to show about the classes that random nodes do (see
            `gistgnn.graphs.clustering`).
        clusters_per_batch: q. Defaults to about 2,000 nodes, or more where c is given and batches
            show few classes.
        method: "metis", which cuts few edges; "split", which splits the clusters of a coarse cut by
            METIS: it cuts more edges, in a fraction of the time; "stream", which cuts about as few,
            in less time and memory on large graphs; or "random", for comparison.
        precompute: the first layer sums over all of the graph's edges, not only the batch's: ĀX is
            computed once, as in Cluster-GCN. In the paper a batch sees its own edges alone (section
            2.2). Only models of `gistgnn.nn` whose first layer sums x itself use it.
    """

    name = "clusters"

    clusters: AtLeastOne | None = None
    clusters_per_batch: AtLeastOne | None = None
    method: str = "metis"
    precompute: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters and self.clusters_per_batch and self.clusters_per_batch > self.clusters:
            fault = (
                f"clusters_per_batch is {self.clusters_per_batch}, more than the "
                f"{self.clusters} clusters there are:"
            )
            raise InputError(f"{fault} expected 1 to {self.clusters}")
        check_choice("method", self.method, METHODS)

    def sampler(self, full_batch: Batch, seed: int, layers: int | None = None) -> "ClusterBatches":
        """Cluster a graph, or read its clusters from the cache, and return the sampler.

        See `Sampling.sampler`.
        """
        clusters, q, entropy = self.clusters_of(full_batch, seed)
        count = len(clusters) if clusters else len(cast(Tensor, full_batch.cluster_ptr)) - 1
        sampler = ClusterBatches(full_batch, clusters, q, seed, precompute=self.precompute)
        if self.batches == "independent":
            sampler = sampler.with_independent_batches()
        sampler.facts = BatchFacts(clusters=count, clusters_per_batch=q, label_entropy=entropy)
        sampler.has_given_size = self.clusters_per_batch is not None
        if entropy is not None and entropy < clustering.POOR:
            self._note_poor(entropy, count, q, full_batch)
        return sampler

    def clusters_of(
        self, full_batch: Batch, seed: int
    ) -> tuple[Clusters | None, int, float | None]:
        """Return the clusters, how many make a batch, and the share of the labels' entropy in it.

        The clusters are None where the nodes are in their order already.
        """
        ptr = full_batch.cluster_ptr
        c = self.clusters
        q = self.clusters_per_batch
        nodes = full_batch.x.shape[0]

        def cut(count: int) -> Clusters:
            return cluster(full_batch.csr, nodes, count, self.method, seed)

        def share(assignment: Tensor, per_batch: int) -> float | None:
            return entropy_share(full_batch.y, full_batch.loss_nodes, assignment, per_batch, seed)

        if ptr is None and c is None and q is None:
            return clustering.choose_clusters(
                cut, nodes, lambda made, per_batch: share(made.assignment, per_batch)
            )
        if ptr is None:
            clusters = cut(c or first_cut(nodes))
            count = len(clusters)
            assignment = clusters.assignment
        else:
            clusters = None
            count = len(ptr) - 1
            assignment = torch.arange(count).repeat_interleave(ptr.diff())
            if c not in (None, count):
                raise InputError(
                    f"clusters is {c}, but the folder of the graph has {count} clusters: leave "
                    "clusters out, or cut the graph anew"
                )
        if q is not None:
            per_batch = min(q, c or count)
            return clusters, per_batch, share(assignment, per_batch)
        # The clusters are given: batches get more of them until their labels have enough entropy.
        first = first_batch(nodes, count)
        for per_batch in dict.fromkeys(min(times * first, count) for times in clustering.LARGER):
            entropy = share(assignment, per_batch)
            if entropy is None or entropy >= clustering.ENOUGH:
                break
        return clusters, per_batch, entropy

    def _note_poor(self, entropy: float, clusters: int, per_batch: int, full_batch: Batch) -> None:
        """Log what to choose where batches of the given clusters show few classes."""
        nodes = full_batch.x.shape[0]
        finest = min(round(clustering.FINER[-1] * first_cut(nodes)), nodes)
        if full_batch.cluster_ptr is not None:
            advice = f"cut the graph anew, by `gistgnn partition --clusters {finest}`"
        elif self.clusters or self.clusters_per_batch:
            advice = (
                f"leave clusters and clusters_per_batch out, or take {finest} and "
                f"{first_batch(nodes, finest)}"
            )
        else:
            return
        log.info(
            f"a batch of {per_batch} of the {clusters:,} clusters shows few classes (its labels "
            f"have {entropy:.0%} of "
            f"the entropy of random nodes), which can cost accuracy: {advice}"
        )

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count q/c of the nodes, and the edges between them.

        These are the edges inside their clusters, and those between clusters of the same batch.
        """
        c = self.clusters or graph.clusters or first_cut(graph.nodes)
        q = min(self.clusters_per_batch or first_batch(graph.nodes, c), c)
        inside = METIS_INSIDE if self.method != "random" and c > 1 else 1 / c
        both_drawn = (q - 1) / (c - 1) if c > 1 else 0.0
        edges = graph.edges * q / c * (inside + (1 - inside) * both_drawn)
        return Expected.subgraph(
            graph, graph.nodes * q / c, edges, steps=-(-c // q), precomputed=self.precompute
        )


class AutoSampling(Sampling):
    """Training on the whole graph, or by clusters where it is large.

    Batches are clusters above `WHOLE_GRAPH` nodes, or where they are independent.
    """

    name = "auto"

    def choose(self, nodes: int) -> ClusterSampling | None:
        """Return the settings for a graph of some nodes.

        Returns None if every step sees the whole graph.
        """
        small = nodes <= WHOLE_GRAPH and self.batches == "shared"
        return None if small else ClusterSampling(batches=self.batches)

    def sampler(self, full_batch: Batch, seed: int, layers: int | None = None) -> RandomBatches:
        """Return the sampler of a user's own loop; a small graph is one batch."""
        sampling = self.choose(len(full_batch.x))
        if sampling is None:
            ptr = full_batch.cluster_ptr
            if ptr is None:
                sampling = ClusterSampling(1, 1, "random")
            else:  # The graph's folder says what the clusters are: take all of them.
                sampling = ClusterSampling(clusters_per_batch=len(ptr) - 1)
        return sampling.sampler(full_batch, seed, layers)

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        return expected_batch(self.choose(graph.nodes), graph, layers)


def chosen_sampling(sampling: Sampling | None, nodes: int) -> Sampling | None:
    """Return the settings for a graph of some nodes: those of `AutoSampling` follow from them."""
    return sampling.choose(nodes) if isinstance(sampling, AutoSampling) else sampling


class ClusterBatches(RandomBatches):
    """Batches of random clusters: all their nodes, and all edges between these.

    An epoch is a random permutation of the c clusters, cut into groups of q = `per_batch`. It
    follows from (seed, epoch), so that a batch follows from its step alone. A batch may hold no
    training node.

    The graph is copied once and renumbered, so that a batch is made of contiguous slices. The edges
    into a node keep their order, so that its row of Ā x has the same bits. A folder of clusters is
    in this order already, and its batches are read from files.

    Args:
        full_batch: what training sees of the graph.
        clusters: of its nodes. Defaults to `Batch.cluster_ptr`.
        per_batch: q.
        seed: of the run.
        precompute: see `ClusterSampling`.
        alone: leave out the edges between clusters.
    """

    def __init__(
        self,
        full_batch: Batch,
        clusters: Clusters | None,
        per_batch: int,
        seed: int = 0,
        *,
        precompute: bool = True,
        alone: bool = False,
    ) -> None:
        per_batch = check_count("clusters_per_batch", per_batch)
        super().__init__(seed)
        self.has_given_size = True  # the user's own; else it was chosen for the graph
        ptr = cast(Tensor, full_batch.cluster_ptr)
        if clusters is not None:
            if (nodes := clusters.order.numel()) != len(full_batch.x):
                raise InputError(
                    f"the clusters are of {nodes} nodes, the graph has {len(full_batch.x)}"
                )
            full_batch = _renumbered(full_batch, clusters)
            ptr = clusters.ptr
        edges = full_batch.adj.pattern
        self._full_batch = full_batch
        self._device = full_batch.device
        self._ptr = ptr.numpy()
        self._clusters = len(ptr) - 1
        self._per_batch = per_batch
        self._precompute = precompute
        self._alone = alone
        self._rowptr = edges.rowptr.cpu().numpy()
        self._col = edges.col.cpu().numpy()
        self._cluster_of = np.arange(self._clusters, dtype=np.int32).repeat(np.diff(self._ptr))
        self._on_gpu: EdgesOnGPU | None = None
        if full_batch.x.device.type == "cuda":
            self._on_gpu = EdgesOnGPU.of(
                self._rowptr, self._col, self._ptr, self._cluster_of, full_batch.x.device
            )
            self._col = self._col[:0]  # it is on the GPU
            self._edge_data = {
                name: value.to(self._device) for name, value in full_batch.edge_data.items()
            }
            first_epoch = self._drawn(0, -(-self._clusters // per_batch))
            self.largest_batch = self._on_gpu.largest(first_epoch, alone=alone)
        # Counting nodes on a GPU would wait for it.
        self._train = torch.zeros(len(full_batch.x), dtype=torch.bool)
        self._train[full_batch.loss_nodes.cpu()] = True
        self._aggregated: dict[Operator, Tensor] = {}
        self.steps_per_epoch = -(-self._clusters // per_batch)

    def with_smaller_batches(self, times: int) -> "ClusterBatches | None":
        per_batch = self._per_batch // times
        if self.has_given_size or per_batch < 1:
            return None
        facts = None
        if self.facts is not None:
            facts = msgspec.structs.replace(self.facts, clusters_per_batch=per_batch)
        steps_per_epoch = -(-self._clusters // per_batch)
        return self._changed(_per_batch=per_batch, steps_per_epoch=steps_per_epoch, facts=facts)

    def _drawn(self, first_step: int, steps: int) -> Iterator[Array]:
        """Yield the clusters of every batch, ascending."""
        return (
            np.sort(group)
            for _, group in self._shuffled(self._clusters, self._per_batch, first_step, steps)
        )

    def make(self, group: Array) -> Batch:
        """Return the subgraph of the clusters ``group``, ascending; nodes keep their order."""
        ranges = ranges_of(self._ptr, group)
        if self._full_batch.is_stored:
            for array in (self._full_batch.x, *self._aggregated.values()):
                read_ahead(array, ranges)
        pattern, data = self._induced(group, ranges)
        return Batch(
            self._features(ranges),
            pattern.to(self._device),
            join_ranges(self._full_batch.y, ranges),
            to_device(join_ranges(self._train, ranges).nonzero().squeeze(1), self._device),
            self._products(ranges) if self._precompute else None,
            self._full_batch.is_sparse,
            edge_data={name: to_device(value, self._device) for name, value in data.items()},
        )

    def _features(self, ranges: Ranges) -> Tensor:
        """Return the features of some ranges of nodes: [n, F].

        They are a CSR tensor where they are sparse.
        """
        x = self._full_batch.x
        if x.layout is torch.strided:
            return self._rows(x, ranges)
        nodes = torch.cat([torch.arange(start, stop) for start, stop in ranges])
        return rows_of(x, to_device(nodes, x.device))

    def _rows(self, values: Tensor, ranges: Ranges) -> Tensor:
        """Return the rows of some ranges of nodes, on the models' device."""
        return to_device(join_ranges(values, ranges), self._device)

    def _products(self, ranges: Ranges) -> Callable[[Operator], Tensor]:
        """Return a function that gives the ranges' rows of the whole graph's Ā x.

        Its first call computes all of Ā x.
        """
        ready = {
            operator: self._rows(product, ranges) for operator, product in self._aggregated.items()
        }

        def product(operator: Operator) -> Tensor:
            if operator in ready:
                return ready[operator]
            if operator not in self._aggregated:
                self._aggregated[operator] = self._product(operator)
            return self._rows(self._aggregated[operator], ranges)

        return product

    def _product(self, operator: Operator) -> Tensor:
        """Return Ā x of the whole graph.

        In memory, nothing holds the graph's operators afterwards: they take much memory.
        """
        full_batch = self._full_batch
        if full_batch.product is not None:
            return full_batch.product(operator)
        edges = full_batch.adj.pattern.for_products().to(self._device)
        weight = full_batch.edge_data.get("edge_weight")
        adj = Adjacency.from_csr(
            edges, full_batch.dtype, None if weight is None else weight.to(self._device)
        )
        return adj.aggregate(operator, full_batch.x)

    def _induced(self, group: Array, ranges: Ranges) -> tuple[CSR, dict[str, Tensor]]:
        """Return the edges between the nodes of some clusters, renumbered, and their data."""
        edges_on_gpu = self._on_gpu
        if edges_on_gpu is not None:
            pattern, places = edges_on_gpu.induced(group, alone=self._alone)
            cuts = edges_on_gpu.cuts(group)
            return pattern, {
                name: join_ranges(value, cuts).index_select(0, places)
                for name, value in self._edge_data.items()
            }
        cuts = [(int(self._rowptr[start]), int(self._rowptr[stop])) for start, stop in ranges]
        pattern, inside = self._induced_on_host(group, ranges, cuts)
        return pattern, {
            name: join_ranges(value, cuts)[inside]
            for name, value in self._full_batch.edge_data.items()
        }

    def _induced_on_host(self, group: Array, ranges: Ranges, cuts: Ranges) -> tuple[CSR, Array]:
        """Return the edges between the nodes of some clusters, renumbered.

        Also returns the mask of them among all edges into these nodes.

        Args:
            group: the clusters, ascending.
            ranges: of their nodes.
            cuts: the ranges of the edges into these nodes.
        """
        if self._full_batch.is_stored:
            read_ahead(self._full_batch.adj.pattern.col, cuts)
        source = np.concatenate([self._col[begin:end] for begin, end in cuts])
        if self._full_batch.is_stored:
            check_sources(torch.from_numpy(source), len(self._cluster_of))
        degrees = [np.diff(self._rowptr[start : stop + 1]) for start, stop in ranges]
        # The ends of each node's edges in `source`.
        ends = np.concatenate([np.zeros(1, np.int64), *degrees]).cumsum()
        # A cluster moves as a whole from its place in the graph to its place in the batch. Nodes of
        # other clusters get numbers below 0.
        node_counts = self._ptr[group + 1] - self._ptr[group]
        node_shift = np.full(self._clusters, -len(self._cluster_of), source.dtype)
        node_shift[group] = node_counts.cumsum() - node_counts - self._ptr[group]
        cluster = self._cluster_of[source]
        local = source + node_shift[cluster]
        inside = local >= 0
        if self._alone:
            inside &= cluster == np.repeat(group, [end - begin for begin, end in cuts])
        before = np.zeros(len(source) + 1, np.int64)
        np.cumsum(inside, out=before[1:])
        rowptr = before[ends]
        col = local[inside]
        nodes = int(node_counts.sum())
        dtype = index_dtype(nodes, len(col))
        return CSR(torch.from_numpy(rowptr).to(dtype), torch.from_numpy(col).to(dtype)), inside


def _renumbered(full_batch: Batch, clusters: Clusters) -> Batch:
    """Return a copy of a graph with its nodes in the order of its clusters."""
    pattern = full_batch.csr
    numbers = clusters.order.numpy()
    order = clusters.order.to(full_batch.x.device)
    train = torch.zeros(len(numbers), dtype=torch.bool, device=order.device)
    train[full_batch.loss_nodes] = True
    entries = (
        np.arange(pattern.num_edges)
        if full_batch.edge_data
        else np.ones(pattern.num_edges, np.int8)
    )
    rows = sp.csr_matrix((entries, pattern.col.numpy(), pattern.rowptr.numpy()), pattern.shape)[
        numbers
    ]
    place_of_node = np.empty(len(numbers), rows.indices.dtype)
    place_of_node[numbers] = np.arange(len(numbers))
    edges = CSR(torch.from_numpy(rows.indptr), torch.from_numpy(place_of_node[rows.indices]))
    data = {
        name: value.cpu()[torch.from_numpy(rows.data)]
        for name, value in full_batch.edge_data.items()
    }
    # Sparse rows are gathered once here, and not searched for in every dense batch.
    x = rows_of(
        full_batch.features.csr if isinstance(full_batch.features, SparseMatrix) else full_batch.x,
        order,
    )
    y = full_batch.y.index_select(0, order)
    nodes = train.index_select(0, order).cpu().nonzero().squeeze(1)
    return Batch(x, edges, y, nodes, sparse=full_batch.is_sparse, edge_data=data)
