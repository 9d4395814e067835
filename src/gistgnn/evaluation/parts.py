"""The approximate output of any module, some parts of the graph after the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import WORK, Budget, Costs
from gistgnn.graphs.clustering import cluster
from gistgnn.io.stored_tensor import reading_bytes
from gistgnn.nn.gnn import as_gnn
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.clusters import Renumbered
from gistgnn.utils.available import available_bytes
from gistgnn.utils.random_streams import generator

Array = npt.NDArray[Any]
_ENTRY = 64  # bytes that the operators take for one entry, while they are made


class ByParts:
    """Runs a module on the subgraphs that the parts induce; the edges between parts are left out.

    The paper evaluates models wider than 4096 like this, by 5000 parts. The parts are METIS clusters, and are kept as
    batches where they take less than a quarter of the memory that is available.

    Args:
        batch: the graph.
        parts: P; METIS may make fewer.
        seed: of METIS and of the sample.
        sample: K; how many of the parts are run, the same ones for a seed; None: all.
        at_once: how many nodes one forward may take; parts go together, without the edges between them, as long as
            they have no more.

    Attributes:
        nodes: which nodes have an output, a mask [N]; None: all.

    Raises:
        InputError: more parts than nodes, METIS failed, or no validation or test node is in the sample.
    """

    def __init__(self, batch: Batch, parts: int, seed: int, sample: int | None = None, at_once: int = 1) -> None:
        count, features = batch.x.shape
        if parts > count:
            raise InputError(f"parts is {parts}, expected 1 to {count}, the nodes of the graph")
        self._clusters = cluster(batch.edge_index, count, parts, "metis", seed)
        chosen = np.arange(len(self._clusters))
        if sample is not None:
            chosen = np.sort(generator(seed, "parts").permutation(chosen)[:sample])
        self._groups = _groups(chosen, self._clusters.sizes.numpy(), at_once)
        self._sample = len(chosen)
        self.nodes: Tensor | None = None
        if sample is not None:
            self.nodes, self._scored = self._count(batch, chosen)
        inside = batch.adj.pattern.to(torch.device("cpu")).within(self._clusters.assignment)
        alone = replace(batch, edges=inside, y=batch.x.new_empty(count, 0), product=None, sparse=batch.is_sparse)
        self._graph = Renumbered(alone, self._clusters, precompute=False)
        size = 2 * count * features * batch.x.element_size() + 40 * inside.nnz  # with operators and products
        share = len(chosen) / len(self._clusters)
        self._kept = list(self._batches()) if share * size < available_bytes(batch.x.device) // 4 else None

    def describe(self) -> dict[str, Any]:
        """The method, as result.json holds it."""
        how = {"method": "parts", "exact": False, "parts": len(self._clusters)}
        return how if self.nodes is None else {**how, "sample": self._sample, "nodes": self._scored}

    def logits(self, model: nn.Module) -> Tensor:
        """The output of a module in evaluation mode: [N, C]; not a number for the nodes that are not in the sample."""
        order, ptr = self._clusters.order.to(self._graph.x.device), self._clusters.ptr.tolist()
        out = torch.empty(0)
        for index, (group, batch) in enumerate(zip(self._groups, self._kept or self._batches(), strict=True)):
            found = forward(model, batch)
            if index == 0:
                out = found.new_empty(len(order), found.shape[1])
                if self.nodes is not None:
                    out.fill_(torch.nan)
            out[torch.cat([order[ptr[part] : ptr[part + 1]] for part in group])] = found
        return out

    def _batches(self) -> Iterable[Batch]:
        return (self._graph.batch(group) for group in self._groups)

    def _count(self, batch: Batch, chosen: Array) -> tuple[Tensor, dict[str, int]]:
        """Which nodes are in the sample, and how many of each split."""
        run = torch.zeros(len(self._clusters), dtype=torch.bool)
        run[torch.from_numpy(chosen)] = True
        nodes = run[self._clusters.assignment].to(batch.x.device)
        scored = {split: int((mask & nodes).sum()) for split, mask in (batch.splits or {}).items()}
        for split in ("validation", "test"):
            if scored.get(split) == 0:
                raise InputError(
                    f"the sample of {len(chosen)} of {len(self._clusters)} parts holds no {split} node: raise the "
                    "sample, or leave it out"
                )
        return nodes, scored


def nodes_at_once(model: nn.Module, batch: Batch, budget: Budget, reading: int | None = None) -> int:
    """How many nodes of parts one forward of a model takes best, at least 1.

    Weights in files are read once for each forward: as many as the memory allows. With weights in memory, models of
    gistgnn.nn take as many as keep a processor busy, and others one part after another, for they might look at a
    batch as a whole. ``reading``: bytes that weights in files take while they are read; None: as the model shows.
    """
    gnn, reading = as_gnn(model), reading_bytes(model) if reading is None else reading
    if gnn is None and not reading:
        return 1
    size, degree = batch.x.element_size(), batch.adj.num_edges / batch.x.shape[0] + 1
    if gnn is not None:
        layers = Costs(gnn, batch, most_kept=0).layers
        node = max(layer.row(size) + degree * 3 * size * (layer.scores // 2) for layer in layers)
    else:  # its layers may hold the features of both ends of every edge
        widest = max(chain(batch.x.shape[1:], *(t.shape for t in chain(model.parameters(), model.buffers()))))
        node = size * widest * (6 + 2 * degree)
    room = budget.compute - reading if reading else min(WORK, budget.compute)
    return max(int(room / (node + _ENTRY * degree)), 1)


def _groups(chosen: Array, sizes: Array, most: int) -> list[Array]:
    """Consecutive parts of at most ``most`` nodes, or of one part."""
    groups: list[list[int]] = []
    held = most
    for part in chosen.tolist():
        if held + sizes[part] > most:
            groups.append([])
            held = 0
        groups[-1].append(part)
        held += int(sizes[part])
    return [np.array(group) for group in groups]
