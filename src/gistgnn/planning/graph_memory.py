"""The memory of a graph: reading it, clustering it, and the batches made of it, without values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.nn.adjacency import Operator
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.sampled import Degrees, SampledAdjacency
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.ledger import passing
from gistgnn.planning.sizes import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import Batch, ClusterSampling
from gistgnn.sampling.expected import Expected

_PYG = 25 * 2**20  # bytes
AHEAD = 2  # batches that wait while one is trained on


@dataclass(eq=False)
class Prepared:
    """A graph in memory.

    Attributes:
        sizes: of the graph.
        whole: the graph as evaluation sees it.
        seen: the part of it that training sees, which may be all.
        host: what else stays of the loaded graph on the host.
    """

    sizes: GraphSizes
    whole: Batch
    seen: Batch
    host: list[Tensor]

    def sampled(self, config: RunConfig) -> Steps:
        """The batches of a run: the graph itself, or cut out of a copy of it that lies cluster by cluster."""
        sizes = self.sizes.training() if config.inductive else self.sizes
        expected = sizes.expected(config.sampler, config.model.layers)
        if expected is None:
            return Steps(self.seen)
        if isinstance(config.sampler, ClusterSampling):
            return Clustered(self.seen, sizes, expected, precompute=config.sampler.precompute)
        return Sampled(self.seen, expected)


def prepare_graph(config: RunConfig, sizes: GraphSizes) -> Prepared:
    """Read a graph, scale its features, move it where the model is, and cut out what training sees."""
    host = [*_nodes(sizes), torch.empty(2, sizes.edges, dtype=torch.int64)]
    passing(sizes.edges * 9)  # keys of the edges, compared with their neighbours
    if sizes.reader == "pyg":  # PyG's code, and what it has parsed, which Python forgets when it gets to it
        host += [passing(_PYG), torch.empty_like(host[0]), torch.empty_like(host[-1])]
    if config.standardise:
        scaled = torch.empty_like(host[0])
        passing(_size(scaled))
        host[0] = scaled
    x, y, edges = (tensor.to(config.device) for tensor in (host[0], host[1], host[3]))
    sparse = sizes.sparse and not config.standardise
    whole = Batch(x, edges, y, x.new_empty(sizes.train, dtype=torch.int64), sparse=sparse)
    if not config.inductive:
        return Prepared(sizes, whole, whole, host)
    part = sizes.training()
    passing(3 * sizes.edges + 16 * part.edges, x.device)  # which edges are inside, and those before they are renumbered
    x, y, *_ = (tensor.to(config.device) for tensor in _nodes(part))
    edges = x.new_empty(2, part.edges, dtype=torch.int64)
    seen = Batch(x, edges, y, x.new_empty(part.nodes, dtype=torch.int64), sparse=sparse)
    return Prepared(sizes, whole, seen, host)


class Steps:
    """The batch of every step, the same one."""

    per_epoch = 1

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def batches(self, steps: int) -> Generator[Batch, None, None]:
        """Yield so many."""
        for _ in range(steps):
            yield self._batch

    def select_columns(self, columns: Tensor) -> Steps:
        """The same with some of the input features alone."""
        return Steps(self._batch.select_columns(columns))


class Anew(Steps, ABC):
    """Makes batches as `gistgnn.sampling.DrawnBatches` does, each anew."""

    _columns: Tensor | None = None

    def batches(self, steps: int) -> Generator[Batch, None, None]:
        """Yield so many; others are made ahead."""
        waiting = [self._make() for _ in range(AHEAD)]
        for _ in range(steps):
            batch = self._make()
            yield batch if self._columns is None else batch.select_columns(self._columns)
        del waiting

    def select_columns(self, columns: Tensor) -> Anew:
        """The same with some of the input features alone."""
        other = copy(self)
        other._columns = columns
        return other

    @abstractmethod
    def _make(self) -> Batch:
        """A batch."""


class Clustered(Anew):
    """Makes the batches of `gistgnn.sampling.clusters.ClusterBatches`."""

    def __init__(self, whole: Batch, sizes: GraphSizes, expected: Expected, *, precompute: bool) -> None:
        self._whole, self._sizes, self._precompute = whole, sizes.batch(expected), precompute
        self.per_epoch = expected.steps
        self._products: dict[Operator, Tensor] = {}
        nodes, edges = sizes.nodes, sizes.edges
        host = torch.device("cpu")
        # scipy: ends as 32 bit, chosen, as a COO and as a CSR matrix; and the transpose, to see whether it is symmetric
        passing(31 * edges)
        self._order = torch.empty(2, nodes, dtype=torch.int64, device=host)
        self._x, self._y = whole.x.clone(), whole.y.clone()
        pattern = whole.adj.pattern
        passing(10 * pattern.nnz)  # the rows in their new order, before their columns are renumbered
        self._rows = torch.empty_like(pattern.col, device=host), torch.empty_like(pattern.rowptr, device=host)

    def _make(self) -> Batch:
        nodes, edges = self._sizes.nodes, self._sizes.edges
        x = self._x[:nodes].clone()
        rowptr, col = (x.new_empty(size, dtype=index_dtype(nodes, edges)) for size in (nodes + 1, edges))
        product = self._product if self._precompute else None
        pattern = Pattern(rowptr, col, (nodes, nodes))
        loss_nodes = x.new_empty(self._sizes.train, dtype=torch.int64)
        return Batch(x, pattern, self._y[:nodes].clone(), loss_nodes, product, self._whole.is_sparse)

    def _product(self, operator: Operator) -> Tensor:
        if operator not in self._products:
            matrix: SparseMatrix = getattr(self._whole.adj, operator)
            order = torch.empty(len(self._x), dtype=torch.int64, device=self._x.device)
            self._products[operator] = (matrix @ self._whole.x).index_select(0, order)
        return self._products[operator][: self._sizes.nodes].clone()


class Sampled(Anew):
    """Makes batches of sampled edges: subgraphs, or layers with edges of their own."""

    def __init__(self, whole: Batch, expected: Expected) -> None:
        self._whole, self._expected, self.per_epoch = whole, expected, expected.steps
        pattern, host = whole.adj.pattern, torch.device("cpu")
        self._held = [torch.empty(pattern.nnz, dtype=torch.int8, device=host)]  # the entries' ones, for scipy
        if host != whole.x.device:
            self._held += [torch.empty_like(pattern.col, device=host), torch.empty_like(pattern.rowptr, device=host)]
        _ = whole.features

    def _make(self) -> Batch:
        nodes, edges = self._expected.nodes, self._expected.edges
        outputs = nodes[1:] or nodes
        first, *above = [self._edges(*each) for each in zip(outputs, nodes, edges, strict=False)]
        adj = SampledAdjacency(first.pattern, first.degrees, first.weight, above=above)
        x, y = self._whole.x, self._whole.y[: outputs[-1]].clone()
        loss_nodes = x.new_empty(self._expected.loss_nodes, dtype=torch.int64)
        if not isinstance(features := self._whole.features, SparseMatrix):
            return Batch(x[: nodes[0]].clone(), adj, y, loss_nodes)
        batch = Batch(x[: nodes[0]], adj, y, loss_nodes)  # of which the entries alone take memory
        entries = round(features.nnz * nodes[0] / len(x))
        pattern = self._pattern(nodes[0], x.shape[1], entries)
        batch.__dict__["features"] = SparseMatrix.from_pattern(pattern, x.new_empty(entries))
        return batch

    def _edges(self, outputs: int, inputs: int, edges: int) -> SampledAdjacency:
        value = self._whole.x.new_empty
        return SampledAdjacency(
            self._pattern(outputs, inputs, edges), Degrees(value(inputs), value(inputs)), value(edges)
        )

    def _pattern(self, rows: int, columns: int, entries: int) -> Pattern:
        dtype = index_dtype(rows, columns, entries)
        rowptr, col = (self._whole.x.new_empty(size, dtype=dtype) for size in (rows + 1, entries))
        return Pattern(rowptr, col, (rows, columns))


def _nodes(sizes: GraphSizes) -> list[Tensor]:
    """Features, labels and the masks of the three splits."""
    y = torch.empty(sizes.nodes, sizes.classes) if sizes.multi_label else torch.empty(sizes.nodes, dtype=torch.int64)
    return [torch.empty(sizes.nodes, sizes.features), y, torch.empty(3, sizes.nodes, dtype=torch.bool)]


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
