"""A graph in a folder of clusters, in a rehearsal: what of it is in memory, and what is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gistgnn.evaluation.budget import READ_ENTRY, Plan
from gistgnn.evaluation.required_nodes import MOST
from gistgnn.graphs.csr import CSR, index_dtype
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn import GNN
from gistgnn.nn.adjacency import ENTRIES, ROWS, Operator
from gistgnn.nn.gnn import Propagation
from gistgnn.planning.graph_memory import PlannedBatches, PlannedGraph, indices, node_tensors
from gistgnn.planning.ledger import DISK_DEVICE, Ledger, Work, filler
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import Batch, ClusterSampling, Sampling
from gistgnn.sampling.batch import SPARSE_BELOW
from gistgnn.sampling.expected import Expected

_SAMPLE = 2**17  # nodes whose features are looked at, at most, to find out how many are 0
_SCALED = 2**16  # nodes whose features are in memory at once while their mean is computed
_PIECE = 2**24  # bytes of features that are converted at once
_PAGE = 4096  # bytes of a file that are read at least


def planned_graph(config: RunConfig, sizes: GraphSizes, ledger: Ledger, room: Callable[[], int]) -> PlannedGraph:
    """Return the graph of a run; ``room`` returns the bytes of the host's memory that are left."""
    return StoredGraph(config, sizes, ledger, room) if sizes.stored else PlannedGraph(config, sizes)


class StoredGraph(PlannedGraph):
    """A graph in a folder of clusters. What training and evaluation map or read has no bytes here.

    Attributes:
        whole: the graph as if it were in memory, without bytes; what it computes is what the graph in files computes.
        seen: what training sees of it.
        stored: the graph in files.
    """

    def __init__(self, config: RunConfig, sizes: GraphSizes, ledger: Ledger, room: Callable[[], int]) -> None:
        """``room`` returns the bytes of the host's memory that are left."""
        assert sizes.stored is not None
        self.sizes, self.files, self._ledger, self._room = sizes, sizes.stored, ledger, room
        self._config, device = config, torch.device(config.device)
        standardise = self._decide_on_scaling()
        self.sparse = sizes.nonzero < SPARSE_BELOW and not standardise
        self._on_host = [torch.empty(3, sizes.nodes, dtype=torch.bool), indices(2, sizes.train)]
        loss = self._on_host[1][0].to(device)
        with ledger.uncounted():
            x, y, _ = (tensor.to(device) for tensor in node_tensors(sizes))
            edges = indices(2, sizes.edges, device=device)
            rowptr = indices(sizes.nodes + 1)
        if device.type != "cpu":
            y = torch.empty_like(y)
        self.whole = Batch(x, edges, y, loss, sparse=self.sparse)
        with ledger.uncounted():
            pattern = CSR(rowptr, indices(sizes.edges))
        pattern.__dict__["most_entries"] = self.files.degree  # a tensor without values has no largest one
        ptr = indices(sizes.stored.clusters + 1)
        self.stored = Batch(x, pattern, y, loss, sparse=self.sparse, cluster_ptr=ptr)
        self._made: dict[str, bool] = {}
        self._kept: list[Tensor] = []
        self.seen = self._seen()

    def _decide_on_scaling(self) -> bool:
        """Read some features, and the training nodes' where they are scaled; return whether they are."""
        sizes, row = self.sizes, 4 * self.sizes.features
        filler(2 * row * min(sizes.nodes, _SAMPLE))
        standardise = self._config.standardise
        if standardise is None:
            standardise = sizes.nonzero >= SPARSE_BELOW
        if standardise:
            filler(8 * sizes.train + 6 * row * min(sizes.train, _SCALED))  # two of them, and two as float64
        return standardise

    def _seen(self) -> Batch:
        config = self._config
        if config.inductive:
            return self._training_nodes()
        if isinstance(config.sampler, ClusterSampling):
            return self.whole
        x = torch.empty_like(self.whole.x) if config.sampler is None else self.whole.x
        return self._with_edges(x)

    def in_memory(self) -> Batch:
        """Return the whole graph with its features in memory, and its edges as `Batch.in_memory` has them."""
        return self._with_edges(torch.empty_like(self.whole.x))

    def _with_edges(self, x: Tensor) -> Batch:
        sizes, device = self.sizes, x.device
        rowptr = indices(sizes.nodes + 1, dtype=index_dtype(sizes.nodes, sizes.edges))
        with self._ledger.uncounted() if sizes.edges < 2**31 and device.type == "cpu" else nullcontext():
            col = indices(sizes.edges, dtype=rowptr.dtype, device=device)
        pattern = CSR(rowptr.to(device), col, (sizes.nodes, sizes.nodes))
        return replace(self.whole, x=x, edges=pattern, sparse=self.sparse and x is not self.whole.x)

    def _training_nodes(self) -> Batch:
        """Cut out the subgraph of the training nodes: the edges into them are read, then those that begin there."""
        part, device = self.sizes.training(), self.whole.x.device
        share = self.sizes.train / self.sizes.nodes
        filler(8 * self.sizes.nodes + round(13 * share * self.sizes.edges) + 24 * part.edges)
        x, y, _ = (tensor.to(device) for tensor in node_tensors(part))
        inside, everyone = indices(2, part.edges, device=device), indices(part.nodes, device=device)
        return Batch(x, inside, y, everyone, sparse=self.sparse)

    def batches(self, expected: Expected, ledger: Ledger, sampling: Sampling | None) -> PlannedBatches:
        """Return what stands for the sampler."""
        if sampling is None or self._config.inductive:
            return PlannedBatches(self.seen, expected, ledger, sampling)
        if isinstance(sampling, ClusterSampling):
            return FromFiles(self, expected, ledger, sampling)
        return GatheredFromFiles(self, expected, ledger, sampling)

    def parts(self, expected: Expected, ledger: Ledger, sampling: Sampling) -> PlannedBatches:
        """Return what stands for the parts of an evaluation: they are the clusters of the folder."""
        nodes, room = self.sizes.nodes, self._room() // 4
        batches = 8 * nodes * self.sizes.features + 40 * round(self.files.inside * self.sizes.edges)
        self._kept.append(filler(16 * nodes + (batches if batches < room else 0)))  # which part a node is in
        return FromFiles(self, expected, ledger, sampling)

    def make_product(self, operator: str) -> None:
        """Compute Ā x and put it beside x, unless it is there."""
        if self._made.setdefault(operator, False):
            return
        nodes, features = self.whole.x.shape
        if operator == "gcn":
            self._kept.append(filler(4 * nodes))  # the scale of every row
        column, converted = 4 * nodes, self.files.x if self.files.x < 4 * nodes * features else 0
        columns = min(max(self._room() // 2 // column, 1), features)
        degree = max(self.sizes.edges / nodes, 1)
        rows = 4 * columns * min(ROWS, round(ENTRIES / degree), nodes)
        entries = READ_ENTRY * min(ENTRIES, self.sizes.edges)
        block = columns * column + (converted if columns == features else 2 * _PIECE)
        self._kept.append(filler(4 * nodes * features, DISK_DEVICE))
        filler(block + rows + entries)
        if columns < features:
            filler(4 * nodes * features, DISK_DEVICE)  # the blocks, before their columns are joined
        self._made[operator] = True

    def needed_bytes(self, gnn: GNN) -> int:
        """Return the bytes of the numbers and places of the nodes that evaluation computes, where these are few."""
        if not all(isinstance(layer, Propagation) for layer in gnn.convs):
            return 0
        nodes, held, count = self.sizes.nodes, 0, float(self.sizes.scored_nodes)
        for _ in gnn.convs:
            if count <= MOST * nodes:
                held += round(24 * count) + 4 * nodes
            count = -nodes * math.expm1(-count * (self.sizes.degree + 1) / nodes)  # with the sources of random edges
        return held

    def add_reading(self, plan: Plan, work: Work) -> None:
        """Add what an evaluation layer by layer reads of the files, and the entries of operators that it computes."""
        nodes, features = self.whole.x.shape
        for number, layer in enumerate(plan.layers):
            blocks = len(layer.blocks(plan.columns))
            if layer.cached:
                work.read += 4 * nodes * features + self.files.x * layer.rereads_input
                continue
            if number == 0:
                work.read += self.files.x * ((1 if layer.messages else blocks) + layer.rereads_input)
            work.read += blocks * (self.files.edges + self.files.edge_data)
            work.bytes += blocks * READ_ENTRY * self.sizes.edges


class FromFiles(PlannedBatches):
    """Stands for batches by clusters that are read from the files."""

    waiting = 1  # it is read while a step runs

    def __init__(self, graph: StoredGraph, expected: Expected, ledger: Ledger, sampling: Sampling) -> None:
        self._graph, self._asked = graph, set[Operator]()
        super().__init__(graph.whole, expected, ledger, sampling)

    def _prepare(self, whole: Batch) -> None:
        """Hold the cluster of every node, and whether it is a training node."""
        self._held = [filler(5 * len(whole.x))]

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield batches, while the edges of another one are cut out."""
        source = self._graph.files.edges // self._graph.sizes.edges  # bytes of an edge
        cut = filler(round((2 * source + 9) * self._edges_read))
        yield from super().batches(first_step, steps)
        del cut

    def _make(self, drawn: int) -> Batch:
        count, whole = self._expected.nodes[0], self._whole
        x, y = self._empty(count, whole.x.shape[1]), torch.empty_like(whole.y[:count])
        pattern = self._pattern(count, count, self._expected.edges[0])
        loss = self._empty(self._expected.loss_nodes, dtype=torch.int64)
        ready = {operator: torch.empty_like(x) for operator in self._asked}

        def product(operator: Operator) -> Tensor:
            self._graph.make_product(operator)
            self._asked.add(operator)
            return ready[operator] if operator in ready else torch.empty_like(x)

        return Batch(x, pattern, y, loss, product if self._expected.precomputed else None, whole.is_sparse)

    @property
    def _edges_read(self) -> float:
        """Edges into the nodes of a batch."""
        return self._graph.sizes.edges * self._expected.nodes[0] / self._graph.sizes.nodes

    @property
    def bytes_read(self) -> int:
        """See `PlannedBatches`."""
        files, sizes = self._graph.files, self._graph.sizes
        products = 4 * sizes.nodes * sizes.features * len(self._asked)
        share = self._expected.nodes[0] / sizes.nodes
        return round((files.x + products + files.edges + files.edge_data) * share)


class GatheredFromFiles(PlannedBatches):
    """Stands for sampled batches: the edges are mapped, and the features of some nodes are read from the file."""

    def __init__(self, graph: StoredGraph, expected: Expected, ledger: Ledger, sampling: Sampling) -> None:
        self._graph = graph
        super().__init__(graph.seen, expected, ledger, sampling)

    def _prepare(self, whole: Batch) -> None:
        """Hold a one for every edge, and degrees."""
        nodes, edges = len(whole.x), self._graph.sizes.edges
        self._held: list[Any] = [filler(edges + 8 * nodes)]
        filler(24 * nodes)

    @property
    def bytes_read(self) -> int:
        """See `PlannedBatches`."""
        row = self._graph.files.x // self._graph.sizes.nodes
        pages = -(-row // _PAGE) * _PAGE
        return self._expected.nodes[0] * pages
