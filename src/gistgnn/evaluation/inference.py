"""`Inference`: ways to run a model on all nodes of a graph, at once or one part after another."""

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
    """A way to run models on one graph, prepared once.

    A subclass defines `outputs`, `logits` or both.

    Args:
        num_nodes: N, of the graph.

    Attributes:
        nodes: the mask [N] of the nodes with an output, or None where all nodes have one.
        parts: the number of each node's part, [N], or None where the graph is in one piece.
    """

    nodes: Tensor | None = None
    parts: Tensor | None = None

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json: "method", "exact" and the method's own fields."""

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C].

        It is NaN for nodes without an output.
        """
        out: Tensor | None = None
        for nodes, piece in self.outputs(model):
            out = write_rows(out, nodes, piece, self._num_nodes, torch.nan)
        assert out is not None
        return out

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the same output in pieces, which need not be in memory together."""
        yield slice(0, self._num_nodes), self.logits(model)


class WholeGraph(Inference):
    """Runs any model on the whole graph at once."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(len(batch.x))
        self._batch = batch.in_memory()

    def describe(self) -> dict[str, Any]:
        return {"method": "whole", "exact": True}

    def logits(self, model: nn.Module) -> Tensor:
        return forward(model, self._batch)


class ByParts(Inference):
    """Runs a model on one METIS cluster after another, without the edges between clusters.

    The paper evaluates its widest models in this way (appendix A.5; see `mean_f1`).

    Args:
        batch: the graph.
        parts: the number of clusters.
        seed: of METIS and of the sample.
        sample: how many of the clusters are run. Defaults to all.
        at_once: the most nodes of a pass, which runs several small clusters together.

    Raises:
        InputError: there are more parts than nodes; or the sample has no node of a split that is
            scored.
    """

    def __init__(
        self, batch: Batch, parts: int, seed: int, sample: int | None = None, at_once: int = 1
    ) -> None:
        num_nodes, features = batch.x.shape
        super().__init__(num_nodes)
        if parts > num_nodes:
            raise InputError(f"parts is {parts}, expected 1 to {num_nodes}, the nodes of the graph")
        self._clusters = _parts_of(batch, parts, seed)
        self.parts = self._clusters.assignment
        chosen = np.arange(len(self._clusters))
        if sample is not None:
            chosen = np.sort(generator(seed, "parts").permutation(chosen)[:sample])
            self.nodes = torch.from_numpy(np.isin(self.parts.numpy(), chosen)).to(batch.device)
        self._groups = _group_parts(chosen, self._clusters.sizes.numpy(), at_once)
        self._record = {"method": "parts", "exact": False, "parts": len(self._clusters)}
        if self.nodes is not None:
            self._record |= {
                "sample": len(chosen),
                "nodes": self._count_scored(batch, self.nodes, len(chosen)),
            }
        self._order = self._clusters.order.to(batch.device)
        y = torch.empty(num_nodes, 0, device=batch.device)
        unlabelled = replace(batch, y=y, product=None, sparse=batch.is_sparse)
        clusters = self._clusters if batch.cluster_ptr is None else None
        self._graph = ClusterBatches(unlabelled, clusters, 1, precompute=False, alone=True)
        # Parts are made once if there is room for their features, products and operators.
        graph_bytes = 2 * num_nodes * features * batch.dtype.itemsize + 40 * batch.adj.num_edges
        needed = len(chosen) / len(self._clusters) * graph_bytes
        fits = needed < available_bytes(batch.device) // 4
        self._cached = list(map(self._graph.make, self._groups)) if fits else None

    def describe(self) -> dict[str, Any]:
        return dict(self._record)

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        order = self._order
        ptr = self._clusters.ptr.tolist()
        batches = self._cached or map(self._graph.make, self._groups)
        for group, batch in zip(self._groups, batches, strict=True):
            nodes = torch.cat([order[ptr[part] : ptr[part + 1]] for part in group])
            yield nodes, forward(model, batch)

    def _count_scored(self, batch: Batch, nodes: Tensor, sample: int) -> dict[str, int]:
        """Return how many nodes of each split are in the sample."""
        scored = {
            split: int((mask & nodes).sum())
            for split, mask in (batch.splits or {}).items()
            if mask.any()
        }
        parts = len(self._clusters)
        for split in ("validation", "test"):
            if scored.get(split) == 0:
                raise InputError(
                    f"the sample of {sample} of {parts} parts has no {split} node: raise the sample"
                )
        return scored


def _parts_of(batch: Batch, parts: int, seed: int) -> Clusters:
    """Return the METIS clusters of a graph, or the clusters of its folder."""
    if batch.cluster_ptr is None:
        return cluster(batch.csr, len(batch.x), parts, "metis", seed)
    in_folder = len(batch.cluster_ptr) - 1
    if parts != in_folder:
        raise InputError(
            f"parts is {parts}, but the folder of the graph has {in_folder} clusters: set parts to "
            f"{in_folder}"
        )
    return Clusters(torch.arange(len(batch.x)), batch.cluster_ptr)


def nodes_at_once(model: nn.Module, batch: Batch | GraphShape, budget: Budget) -> int:
    """Return how many nodes keep a processor busy in one pass over parts of a graph."""
    gnn = row_wise(model)
    if gnn is None:
        return 1  # One part at a time: the model may treat a batch as a whole.
    graph = GraphShape.of(batch)
    # Parts of sparse features are sparse matrices.
    graph = replace(graph, stored=graph.stored and not graph.sparse)
    degree = graph.edges / graph.nodes + 1
    node = max(layer.row + degree * layer.edge for layer in layer_costs(model, graph))
    return max(int(min(_PASS, budget.compute) / node), 1)


def _group_parts(chosen: Array, sizes: Array, most: int) -> list[Array]:
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
    """Averages the outputs of an ensemble's members.

    Args:
        members: the models.
        num_nodes: N, of the graph.
        prepare: prepares the inference of a member; called once for every shape of members.
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        num_nodes: int,
        prepare: Callable[[nn.Module], Inference],
    ) -> None:
        super().__init__(num_nodes)
        kinds = {_shapes(member): member for member in members}
        self._by_shapes = {shapes: prepare(member) for shapes, member in kinds.items()}
        self._first = next(iter(self._by_shapes.values()))
        self.nodes = self._first.nodes
        self.parts = self._first.parts

    def describe(self) -> dict[str, Any]:
        return self._first.describe()

    def logits(self, model: nn.Module) -> Tensor:
        """Return the mean output of an ensemble's members, or that of a single member: [N, C]."""
        members = members_of(model)
        outputs = (self._by_shapes[_shapes(member)].logits(member) for member in members)
        return reduce(torch.add, outputs) / len(members)


def write_rows(
    rows: Tensor | None,
    nodes: slice | Tensor,
    piece: Tensor,
    num_nodes: int,
    fill: float,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Write some nodes' rows into the rows of all nodes, and return these.

    Args:
        rows: of all nodes, [N, ...]; the first call gets None, and makes them.
        nodes: whose rows are written: a range, or [n] by number.
        piece: these rows, [n, ...]; returned as it is where the nodes are all nodes.
        num_nodes: N.
        fill: the value of rows that nothing is written into.
        dtype: of the rows of all nodes. Defaults to that of the piece.
    """
    if isinstance(nodes, slice) and nodes == slice(0, num_nodes):
        return piece
    if rows is None:
        rows = piece.new_full((num_nodes, *piece.shape[1:]), fill, dtype=dtype)
    rows[nodes] = piece.to(rows.dtype)
    return rows


def _shapes(model: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(p.shape for p in model.parameters())
