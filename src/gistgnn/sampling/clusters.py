"""Batches that are unions of random clusters, after Cluster-GCN (section 2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.clustering import METHODS, Clusters, cluster
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.cluster_ranges import ClusterRanges
from gistgnn.sampling.sampler import Array, Expected, RandomBatches, Sampling
from gistgnn.utils.checks import check_count, check_flag, shown

# Share of the edges that lie inside METIS clusters of a few hundred nodes, as on our synthetic Amazon2M.
METIS_INSIDE = 0.6


@dataclass(frozen=True)
class ClusterSampling(Sampling):
    """Training by clusters.

    Args:
        clusters: c, the number of clusters.
        clusters_per_batch: q.
        method: "metis", which cuts few edges; "stream", which cuts about as few, in less time and memory on large
            graphs; or "random", for comparison.
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

        options = {"independent": self.independent, "precompute": self.precompute}
        if whole.cluster_ptr is not None:
            self._require_same_clusters(len(whole.cluster_ptr) - 1)
            return ClusterBatches(whole, None, self.clusters_per_batch, seed, **options, share=share)
        shared = share(compute)
        clusters = Clusters(shared["order"], shared["ptr"])
        return ClusterBatches(whole, clusters, self.clusters_per_batch, seed, **options, share=share)

    def _require_same_clusters(self, there: int) -> None:
        if self.clusters != there:
            raise InputError(
                f"clusters is {self.clusters}, but the folder of the graph has {there} clusters: set clusters to "
                f"{there}, or cut the graph anew"
            )

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count q/c of the nodes, the edges inside their clusters, and the edges between clusters of the same batch.

        A share `METIS_INSIDE` of the edges is taken to lie inside clusters, or 1/c where clusters are random.
        """
        c, q = self.clusters, self.clusters_per_batch
        inside = METIS_INSIDE if self.method != "random" and c > 1 else 1 / c
        both = (q - 1) / (c - 1) if c > 1 else 0.0
        if graph.stored and graph.stored.clusters == c:  # then it is known
            inside = graph.stored.inside
        edges = graph.edges * q / c * (inside + (1 - inside) * both)
        return Expected.subgraph(graph, graph.nodes * q / c, edges, steps=-(-c // q), precomputed=self.precompute)


class ClusterBatches(RandomBatches):
    """Batches of ``per_batch`` random clusters: all their nodes, and all edges between these.

    An epoch is a random permutation of the clusters, cut into ceil(c / q) groups of q; the last group may be smaller.
    The permutation follows from (seed, epoch), so that a batch follows from its step alone. Nodes outside every split
    pass messages like the others. A batch may hold no training node (see `gistgnn.subtrain`).

    The graph is copied once and renumbered, so that every cluster is a contiguous range and a batch is made of slices.
    A graph in a folder of clusters is so already: its batches are read from the files.

    Args:
        whole: the whole graph, on the device where the models run.
        clusters: its partition; None: `Batch.cluster_ptr`.
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
        clusters: Clusters | None,
        per_batch: int,
        seed: int = 0,
        *,
        independent: bool = False,
        precompute: bool = True,
        share: Share = unshared,
    ) -> None:
        nodes = whole.x.shape[0]
        check_count("clusters_per_batch", per_batch)
        if clusters is not None and clusters.order.numel() != nodes:
            raise InputError(f"the clusters are of {clusters.order.numel()} nodes, the graph has {nodes}")
        super().__init__(seed, independent=independent)
        self._per_batch = per_batch
        if clusters is None:
            assert whole.cluster_ptr is not None
            self._graph = ClusterRanges(whole, whole.cluster_ptr, precompute=precompute)
        else:
            self._graph = ClusterRanges.renumbered(whole, clusters, precompute=precompute, share=share)
        self.steps_per_epoch = -(-self._graph.clusters // per_batch)

    def _drawn(self, first_step: int, steps: int) -> Iterator[Array]:
        """Yield the clusters of every batch, ascending."""
        return (np.sort(group) for _, group in self._shuffled(self._graph.clusters, self._per_batch, first_step, steps))

    def _make(self, group: Array) -> Batch:
        return self._graph.batch(group)
