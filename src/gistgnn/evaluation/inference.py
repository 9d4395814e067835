"""`Inference`: a way to run models on every node of one graph: at once, by parts, or the members of
an ensemble.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import Budget, GraphShape, layer_costs
from gistgnn.graphs.clustering import Clusters, cluster
from gistgnn.nn.gnn import members_of, row_wise
from gistgnn.sampling import Batch, ClusterBatches, forward
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.random_streams import generator
from gistgnn.utils.tensors import Array

Output = tuple[slice | Tensor, Tensor]
"""Some nodes, as a range or by number, and their logits: [n, C]."""
_PASS = 2**27  # bytes of a pass over parts: larger ones are not faster


class Inference(ABC):
    """A way to run models on one graph, prepared once; a subclass defines `outputs`, `logits` or
    both.
    """

    nodes: Tensor | None = None  # the mask [N] of the nodes with an output; None: all nodes
    # the number of each node's part, [N]; None: the graph is in one piece
    parts: Tensor | None = None

    def __init__(self, count: int) -> None:
        self._count = count  # N

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json: "method", "exact" and the method's own fields."""

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C], NaN for nodes without an
        output.
        """
        out: Tensor | None = None
        for nodes, piece in self.outputs(model):
            out = put(out, nodes, piece, self._count, torch.nan)
        assert out is not None
        return out

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the same output in pieces, which need not be in memory together."""
        yield slice(0, self._count), self.logits(model)


class WholeGraph(Inference):
    """Runs any model on the whole graph at once."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(len(batch.x))
        self._batch = batch.in_memory()

    def describe(self) -> dict[str, Any]:
        return {"method": "whole", "exact": True}

    def logits(self, model: nn.Module) -> Tensor:
        return forward(model, self._batch)


# So the paper evaluates its widest models (appendix A.5; see `mean_f1`). A pass takes up to
# `at_once` nodes.
class ByParts(Inference):
    """Runs a model on `sample` METIS clusters (None: all) one after the other, without the edges
    between them.
    """

    def __init__(
        self, batch: Batch, parts: int, seed: int, sample: int | None = None, at_once: int = 1
    ) -> None:
        count, features = batch.x.shape
        super().__init__(count)
        if parts > count:
            raise InputError(f"parts is {parts}, expected 1 to {count}, the nodes of the graph")
        self._clusters = _parts_of(batch, parts, seed)
        self.parts = self._clusters.assignment
        chosen = np.arange(len(self._clusters))
        if sample is not None:
            chosen = np.sort(generator(seed, "parts").permutation(chosen)[:sample])
            self.nodes = torch.from_numpy(np.isin(self.parts.numpy(), chosen)).to(batch.device)
        self._groups = _groups(chosen, self._clusters.sizes.numpy(), at_once)
        self._record = {"method": "parts", "exact": False, "parts": len(self._clusters)}
        if self.nodes is not None:
            self._record |= {
                "sample": len(chosen),
                "nodes": self._scored(batch, self.nodes, len(chosen)),
            }
        self._order = self._clusters.order.to(batch.device)
        y = torch.empty(count, 0, device=batch.device)
        unlabelled = replace(batch, y=y, product=None, sparse=batch.is_sparse)
        clusters = self._clusters if batch.cluster_ptr is None else None
        self._graph = ClusterBatches(unlabelled, clusters, 1, precompute=False, alone=True)
        # features, their products, operators
        size = 2 * count * features * batch.dtype.itemsize + 40 * batch.adj.num_edges
        fits = len(chosen) / len(self._clusters) * size < available_bytes(batch.device) // 4
        self._cached = list(map(self._graph.make, self._groups)) if fits else None

    def describe(self) -> dict[str, Any]:
        return dict(self._record)

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        order = self._order
        ptr = self._clusters.ptr.tolist()
        for group, batch in zip(
            self._groups, self._cached or map(self._graph.make, self._groups), strict=True
        ):
            yield (
                torch.cat([order[ptr[part] : ptr[part + 1]] for part in group]),
                forward(model, batch),
            )

    def _scored(self, batch: Batch, nodes: Tensor, sample: int) -> dict[str, int]:
        """Return how many nodes of each split are in the sample."""
        scored = {
            split: int((mask & nodes).sum())
            for split, mask in (batch.splits or {}).items()
            if mask.any()
        }
        if empty := next(
            (split for split in ("validation", "test") if scored.get(split) == 0), None
        ):
            parts = len(self._clusters)
            raise InputError(
                f"the sample of {sample} of {parts} parts has no {empty} node: raise the sample"
            )
        return scored


def _parts_of(batch: Batch, parts: int, seed: int) -> Clusters:
    """Return the METIS clusters of a graph; of one in a folder of clusters, these."""
    if batch.cluster_ptr is None:
        return cluster(batch.csr, len(batch.x), parts, "metis", seed)
    if parts != (there := len(batch.cluster_ptr) - 1):
        raise InputError(
            f"parts is {parts}, but the folder of the graph has {there} clusters: set parts to "
            f"{there}"
        )
    return Clusters(torch.arange(len(batch.x)), batch.cluster_ptr)


def nodes_at_once(model: nn.Module, batch: Batch | GraphShape, budget: Budget) -> int:
    """Return how many nodes one forward pass of a model should take: enough to keep a processor
    busy.
    """
    gnn = row_wise(model)
    if gnn is None:
        return 1  # one part at a time: the model may treat a batch as a whole
    graph = GraphShape.of(batch)
    # parts of sparse features are sparse matrices
    graph = replace(graph, stored=graph.stored and not graph.sparse)
    degree = graph.edges / graph.nodes + 1
    node = max(layer.row + degree * layer.edge for layer in layer_costs(model, graph))
    return max(int(min(_PASS, budget.compute) / node), 1)


def _groups(chosen: Array, sizes: Array, most: int) -> list[Array]:
    """Group consecutive parts: at most ``most`` nodes per group, or one part."""
    groups: list[list[int]] = []
    nodes = most
    for part in chosen.tolist():
        if nodes + sizes[part] > most:
            groups.append([])
            nodes = 0
        groups[-1].append(part)
        nodes += int(sizes[part])
    return [np.array(group) for group in groups]


class EnsembleAverage(Inference):
    """Averages the outputs of an ensemble's members; ``prepare`` is called once for every shape of
    members.
    """

    def __init__(
        self, members: Sequence[nn.Module], nodes: int, prepare: Callable[[nn.Module], Inference]
    ) -> None:
        super().__init__(nodes)
        kinds = {_shapes(member): member for member in members}
        self._by_shapes = {shapes: prepare(member) for shapes, member in kinds.items()}
        self._first = next(iter(self._by_shapes.values()))
        self.nodes = self._first.nodes
        self.parts = self._first.parts

    def describe(self) -> dict[str, Any]:
        return self._first.describe()

    def logits(self, model: nn.Module) -> Tensor:
        """Return the mean output of an ensemble's members, or the output of a single member: [N,
        C].
        """
        members = members_of(model)
        outputs = (self._by_shapes[_shapes(member)].logits(member) for member in members)
        return reduce(torch.add, outputs) / len(members)


def put(
    into: Tensor | None,
    nodes: slice | Tensor,
    piece: Tensor,
    count: int,
    fill: float,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Write some rows into a tensor for ``count`` nodes; None: make it, all ``fill``. All nodes'
    rows come back.
    """
    if isinstance(nodes, slice) and nodes == slice(0, count):
        return piece
    if into is None:
        into = piece.new_full((count, *piece.shape[1:]), fill, dtype=dtype)
    into[nodes] = piece.to(into.dtype)
    return into


def _shapes(model: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(p.shape for p in model.parameters())
