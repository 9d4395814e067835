"""The graph of a run and its batches, as tensors without values."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from gistgnn.evaluation.budget import Plan
from gistgnn.graphs.csr import CSR, index_dtype
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn import GNN
from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.nn.sampled import Degrees, SampledAdjacency
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.ledger import Ledger, Work, bytes_of, filler
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import Batch, RandomBatches, Sampling
from gistgnn.sampling.batch import SPARSE_BELOW
from gistgnn.sampling.expected import Expected

_PYG = 25 * 2**20  # bytes of PyG's code

indices = partial(torch.empty, dtype=torch.int64)


class PlannedGraph:
    """Reads a graph, scales its features, moves it to the device and cuts out what training sees (`seen`).

    Attributes:
        whole: the graph.
        seen: what training sees of it.
        stored: the graph, where it stays in files.
    """

    stored: Batch | None = None

    def __init__(self, config: RunConfig, sizes: GraphSizes) -> None:
        nodes, edges = node_tensors(sizes), _edge_tensors(sizes)
        self._on_host = [*nodes, *edges]
        if not sizes.by_target:
            filler(sizes.edges * 9)  # keys of the edges, which are compared with their neighbours
        if sizes.reader == "pyg":  # and the arrays that it has parsed, which Python frees late
            self._on_host += [filler(_PYG), torch.empty_like(nodes[0]), *map(torch.empty_like, edges)]
        standardise = sizes.nonzero >= SPARSE_BELOW if config.standardise is None else config.standardise
        if standardise:
            self._on_host[0] = torch.empty_like(nodes[0])
            filler(bytes_of(nodes[:1]))
        batch = partial(Batch, sparse=sizes.nonzero < SPARSE_BELOW and not standardise)
        on_device = torch.device(config.device)
        x, y = (tensor.to(on_device) for tensor in self._on_host[:2])
        training = indices(sizes.train, device=on_device)
        self.whole = self.seen = batch(x, _joined([tensor.to(on_device) for tensor in edges], sizes), y, training)
        if config.inductive:
            part = sizes.training()
            # Which edges are inside, and the edges before they are renumbered or joined.
            filler(
                2 * sizes.edges + 4 * part.edges if sizes.by_target else 3 * sizes.edges + 16 * part.edges, on_device
            )
            x, y, *_ = (tensor.to(on_device) for tensor in node_tensors(part))
            inside = _joined(_edge_tensors(part, on_device), part)
            self.seen = batch(x, inside, y, indices(part.nodes, device=on_device))

    def batches(self, expected: Expected, ledger: Ledger, sampling: Sampling | None) -> PlannedBatches:
        """Return what stands for the sampler. It holds what it needs of the training nodes' subgraph."""
        seen, self.seen = self.seen, self.whole
        return PlannedBatches(seen, expected, ledger, sampling)

    def parts(self, expected: Expected, ledger: Ledger, sampling: Sampling) -> PlannedBatches:
        """Return what stands for the parts of an evaluation."""
        return PlannedBatches(self.whole, expected, ledger, sampling)

    def in_memory(self) -> Batch:
        """Return the whole graph, held in memory."""
        return self.whole

    def make_product(self, operator: str) -> None:
        """Do nothing: Ā x is computed with the model."""

    def needed_bytes(self, gnn: GNN) -> int:
        """Return 0: evaluation computes all nodes."""
        return 0

    def add_reading(self, plan: Plan, work: Work) -> None:
        """Do nothing: nothing of the graph is read in an evaluation."""


class PlannedBatches(RandomBatches):
    """Stands for the sampler of a run: its batches have the expected sizes and no values.

    The ledger observes the steps of the first sub-GCN; `steps` is what they held and computed.
    """

    waiting = 2  # batches, while a step runs

    def __init__(self, whole: Batch, expected: Expected, ledger: Ledger, sampling: Sampling | None) -> None:
        super().__init__(0, independent=sampling is not None and sampling.independent)
        self._whole, self._expected, self._ledger, self._cuts = whole, expected, ledger, sampling is not None
        self.steps_per_epoch, self.steps, self._observes = expected.steps, list[Work](), True
        self._products: dict[Operator, Tensor] = {}
        self._device: torch.device = whole.x.device
        self._empty = partial(torch.empty, device=self._device)
        if self._cuts:
            self._prepare(whole)

    def _prepare(self, whole: Batch) -> None:
        """Hold what a sampler makes of the graph: a copy in another order, or its edges on the host."""
        self._held: list[Any] = []
        pattern = whole.adj.pattern
        if not self._expected.sampled:
            filler(31 * pattern.num_edges)  # SciPy's copies of the edges, for METIS
            self._held.append(indices(2, len(whole.x)))
            x, y = whole.x.clone(), whole.y.clone()
            filler(10 * pattern.num_edges)  # the rows in their new order, before their columns are renumbered
            rowptr, col = (torch.empty_like(ends, device="cpu") for ends in (pattern.rowptr, pattern.col))
            self._whole = Batch(x, CSR(rowptr, col, pattern.shape), y, whole.loss_nodes, sparse=whole.is_sparse)
            return
        self._held += [whole.features, filler(pattern.num_edges)]  # the entries' ones, for SciPy
        if self._device.type != "cpu":
            self._held += [torch.empty_like(ends, device="cpu") for ends in (pattern.col, pattern.rowptr)]

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield batches."""
        waiting = [self._make(0) for _ in range(self.waiting)] if self._cuts else []
        for batch in map(self._prepared, self._drawn(first_step, steps)):
            with self._ledger.observed(self._device.type) if self._observes else nullcontext() as work:
                yield batch
            if work:
                work.ahead = self.bytes_read
                self.steps.append(work)
        del waiting

    def for_sub_gcn(self, i: int) -> Self:
        """Return this sampler for the first sub-GCN, if batches are shared; else one like it."""
        return self if i == 0 and not self._independent else self._changed(_observes=i == 0)

    def select_columns(self, columns: Tensor) -> Self:
        """Return the same sampler with the input features ``columns`` alone."""
        if self._cuts:
            return super().select_columns(columns)
        return self._changed(_whole=self._whole.select_columns(columns))

    @property
    def bytes_read(self) -> int:
        """Bytes of a graph's files that are read for a batch."""
        return 0

    def _drawn(self, first_step: int, steps: int) -> Iterator[int]:
        return iter(range(steps if self._observes else 1))  # after one step the other sub-GCNs hold all that they will

    def _make(self, drawn: int) -> Batch:
        if not self._cuts:
            return self._whole
        nodes, expected = self._expected.nodes, self._expected
        loss_nodes = self._empty(expected.loss_nodes, dtype=torch.int64)
        if not expected.sampled:
            pattern = self._pattern(nodes[0], nodes[0], expected.edges[0])
            product = self._product if expected.precomputed else None
            x, y = self._whole.x[: nodes[0]].clone(), self._whole.y[: nodes[0]].clone()
            return Batch(x, pattern, y, loss_nodes, product, self._whole.is_sparse)
        every = zip(nodes[1:] or nodes, nodes, expected.edges, strict=False)
        first, *above = [self._sampled_edges(*layer) for layer in every]
        adj = SampledAdjacency(first.pattern, first.degrees, first.weight, above=above)
        x, y = self._whole.x[: nodes[0]], self._whole.y[: nodes[-1]].clone()
        if not isinstance(features := self._whole.features, SparseMatrix):
            return Batch(x.clone(), adj, y, loss_nodes)
        batch = Batch(x, adj, y, loss_nodes)  # only the entries of x take memory
        entries = round(features.nnz * nodes[0] / len(self._whole.x))
        pattern = self._pattern(nodes[0], x.shape[1], entries)
        batch.__dict__["features"] = SparseMatrix.from_pattern(pattern, self._empty(entries))
        return batch

    def _product(self, operator: Operator) -> Tensor:
        if operator not in self._products:
            pattern, x = self._whole.adj.pattern, self._whole.x
            on_device = CSR(pattern.rowptr.to(x.device), pattern.col.to(x.device), pattern.shape)
            self._products[operator] = Adjacency.from_csr(on_device, x.dtype).aggregate(operator, x)
        return self._products[operator][: self._expected.nodes[0]].clone()

    def _sampled_edges(self, outputs: int, inputs: int, edges: int) -> SampledAdjacency:
        degrees = Degrees(self._empty(inputs), self._empty(inputs))
        return SampledAdjacency(self._pattern(outputs, inputs, edges), degrees, self._empty(edges))

    def _pattern(self, rows: int, columns: int, entries: int) -> CSR:
        dtype = index_dtype(rows, columns, entries)
        return CSR(self._empty(rows + 1, dtype=dtype), self._empty(entries, dtype=dtype), (rows, columns))


def node_tensors(sizes: GraphSizes) -> list[Tensor]:
    """Return features, labels and the masks of the three splits."""
    y = torch.empty(sizes.nodes, sizes.classes) if sizes.multi_label else indices(sizes.nodes)
    return [torch.empty(sizes.nodes, sizes.features), y, torch.empty(3, sizes.nodes, dtype=torch.bool)]


def _edge_tensors(sizes: GraphSizes, device: torch.device | None = None) -> list[Tensor]:
    """Return the tensors that hold the edges: an ``edge_index``, or ``rowptr`` and ``col``."""
    if not sizes.by_target:
        return [indices(2, sizes.edges, device=device)]
    return [
        torch.empty(count, dtype=index_dtype(sizes.nodes, sizes.edges), device=device)
        for count in (sizes.nodes + 1, sizes.edges)
    ]


def _joined(edges: list[Tensor], sizes: GraphSizes) -> Tensor | CSR:
    """Return `_edge_tensors` as a `Batch` takes them."""
    return CSR(edges[0], edges[1], (sizes.nodes, sizes.nodes)) if sizes.by_target else edges[0]
