"""The approximate output of any model, one part of the graph after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import WORK, Budget, Costs
from gistgnn.evaluation.predictions import Output
from gistgnn.graphs import CSR
from gistgnn.graphs.clustering import Clusters, cluster
from gistgnn.io.stored_tensor import reading_bytes
from gistgnn.nn.gnn import as_gnn
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.cluster_ranges import ClusterRanges
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.random_streams import generator

Array = npt.NDArray[Any]
_ENTRY = 64  # bytes per edge while the operators are computed


class ByParts:
    """Runs a model on one part of the graph after the other, without the edges between parts.

    The paper evaluates models wider than 4096 in this way, with 5000 parts, and averages their F1 (appendix A.5; see
    `gistgnn.evaluation.scores.mean_f1`). The parts are METIS clusters. Their batches stay in memory if they need less
    than a quarter of the available memory.

    Args:
        batch: the whole graph.
        parts: number of parts P. METIS may find fewer.
        seed: of METIS and of the sample.
        sample: how many parts run, K; the seed decides which ones; None: all.
        at_once: nodes per forward pass, at most: parts are joined, without the edges between them, up to this size.

    Attributes:
        nodes: mask [N] of the nodes with an output; None: all nodes.
        parts: the number of each node's part, [N].

    Raises:
        InputError: more parts than nodes, METIS failed, or the sample has no validation or no test node.
    """

    def __init__(self, batch: Batch, parts: int, seed: int, sample: int | None = None, at_once: int = 1) -> None:
        count, features = batch.x.shape
        if parts > count:
            raise InputError(f"parts is {parts}, expected 1 to {count}, the nodes of the graph")
        self._clusters = _parts_of(batch, parts, seed)
        self.parts = self._clusters.assignment
        chosen = np.arange(len(self._clusters))
        if sample is not None:
            chosen = np.sort(generator(seed, "parts").permutation(chosen)[:sample])
        self._groups = _groups(chosen, self._clusters.sizes.numpy(), at_once)
        self._sample = len(chosen)
        self.nodes: Tensor | None = None
        if sample is not None:
            self.nodes, self._scored = self._count(batch, chosen)
        self._graph, edges = _ranges(batch, self._clusters)
        size = 2 * count * features * batch.dtype.itemsize + 40 * edges  # features, their products, operators
        share = len(chosen) / len(self._clusters)
        self._cached = list(self._batches()) if share * size < available_bytes(batch.device) // 4 else None

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json."""
        record = {"method": "parts", "exact": False, "parts": len(self._clusters)}
        return record if self.nodes is None else {**record, "sample": self._sample, "nodes": self._scored}

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C], NaN for nodes outside the sample."""
        out = torch.empty(0)
        for index, (nodes, logits) in enumerate(self.outputs(model)):
            if index == 0:
                out = logits.new_full((len(self.parts), logits.shape[1]), torch.nan)
            out[nodes] = logits
        return out

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the output for some parts after another."""
        order, ptr = self._clusters.order.to(self._graph.device), self._clusters.ptr.tolist()
        for group, batch in zip(self._groups, self._cached or self._batches(), strict=True):
            yield torch.cat([order[ptr[part] : ptr[part + 1]] for part in group]), forward(model, batch)

    def _batches(self) -> Iterable[Batch]:
        return (self._graph.batch(group) for group in self._groups)

    def _count(self, batch: Batch, chosen: Array) -> tuple[Tensor, dict[str, int]]:
        """Return the mask [N] of the nodes in the sample, and how many nodes of each split it has."""
        sampled = torch.zeros(len(self._clusters), dtype=torch.bool)
        sampled[torch.from_numpy(chosen)] = True
        nodes = sampled[self.parts].to(batch.device)
        scored = {split: int((mask & nodes).sum()) for split, mask in (batch.splits or {}).items()}
        if empty := next((split for split in ("validation", "test") if scored.get(split) == 0), None):
            sample = f"the sample of {len(chosen)} of {len(self._clusters)} parts"
            raise InputError(f"{sample} has no {empty} node: raise the sample, or leave it out")
        return nodes, scored


def _parts_of(batch: Batch, parts: int, seed: int) -> Clusters:
    """Return the METIS clusters of a graph; of one in a folder of clusters, these.

    Raises:
        InputError: METIS failed, or the folder has another number of clusters.
    """
    ptr, count = batch.cluster_ptr, len(batch.x)
    if ptr is None:
        return cluster(batch.csr, count, parts, "metis", seed)
    if parts != len(ptr) - 1:
        raise InputError(
            f"parts is {parts}, but the folder of the graph has {len(ptr) - 1} clusters: set parts to {len(ptr) - 1}"
        )
    return Clusters(torch.arange(count), ptr)


def _ranges(batch: Batch, clusters: Clusters) -> tuple[ClusterRanges, int]:
    """Return the parts without the edges between them, and at most how many edges they have."""
    unlabelled = replace(
        batch, y=torch.empty(len(batch.x), 0, device=batch.device), product=None, sparse=batch.is_sparse
    )
    if batch.cluster_ptr is not None:
        return ClusterRanges(unlabelled, batch.cluster_ptr, precompute=False, alone=True), batch.adj.num_edges
    inside, kept = _within(batch.csr, clusters.assignment)
    data = {name: value.cpu()[kept] for name, value in batch.entry_data.items()}
    part = replace(unlabelled, edges=inside, edge_data=data)
    return ClusterRanges.renumbered(part, clusters, precompute=False), inside.num_edges


def _within(edges: CSR, part: Tensor) -> tuple[CSR, Tensor]:
    """Return the edges that stay within a part of the graph, and the mask [E] of them. ``part``: [N] integers."""
    part = part.to(edges.col.dtype)
    keep = part.index_select(0, edges.col) == edges.repeated(part)
    before = torch.cat([edges.rowptr.new_zeros(1), keep.cumsum(0, dtype=edges.rowptr.dtype)])
    return CSR(before.index_select(0, edges.rowptr), edges.col[keep], edges.shape), keep


def nodes_at_once(model: nn.Module, batch: Batch, budget: Budget, reading: int | None = None) -> int:
    """Return how many nodes one forward pass of a model should take, at least 1.

    If the weights are on disk, every forward pass reads them once: it takes as many nodes as the memory allows. If they
    are in memory, a model of `gistgnn.nn` takes enough nodes to keep a processor busy. Any other model takes one part
    at a time, because it may treat a batch as a whole. ``reading``: bytes for weights being read from disk; None: ask
    the model.
    """
    gnn, reading = as_gnn(model), reading_bytes(model) if reading is None else reading
    if gnn is None and not reading:
        return 1
    size, degree = batch.dtype.itemsize, batch.adj.num_edges / batch.x.shape[0] + 1
    if gnn is not None:
        layers = Costs(gnn, batch, largest_cached=0).layers
        node = max(layer.row(size) + degree * 3 * size * layer.heads for layer in layers)
    else:  # a layer may hold the features of both ends of every edge
        widest = max(chain(batch.x.shape[1:], *(t.shape for t in chain(model.parameters(), model.buffers()))))
        node = size * widest * (6 + 2 * degree)
    room = budget.compute - reading if reading else min(WORK, budget.compute)
    return max(int(room / (node + _ENTRY * degree)), 1)


def _groups(chosen: Array, sizes: Array, most: int) -> list[Array]:
    """Group consecutive parts: at most ``most`` nodes per group, or one part."""
    groups: list[list[int]] = []
    held = most
    for part in chosen.tolist():
        if held + sizes[part] > most:
            groups.append([])
            held = 0
        groups[-1].append(part)
        held += int(sizes[part])
    return [np.array(group) for group in groups]
