"""The memory of a graph: reading it, clustering it, and the batches made of it, without values."""

from __future__ import annotations

from collections.abc import Generator
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.nn.adjacency import Operator
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.ledger import passing
from gistgnn.planning.sizes import GraphSizes
from gistgnn.run import RunConfig
from gistgnn.sampling import Batch

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
        if config.sampler is None:
            return Steps(self.seen)
        return Clustered(self.seen, sizes, sizes.batch(config.sampler), precompute=config.sampler.precompute)


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

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def batches(self, steps: int) -> Generator[Batch, None, None]:
        """Yield so many."""
        for _ in range(steps):
            yield self._batch

    def select_columns(self, columns: Tensor) -> Steps:
        """The same with some of the input features alone."""
        return Steps(self._batch.select_columns(columns))


class Clustered(Steps):
    """Makes the batches of `gistgnn.sampling.clusters.ClusterBatches`, each anew."""

    def __init__(self, whole: Batch, sizes: GraphSizes, batch: GraphSizes, *, precompute: bool) -> None:
        self._whole, self._sizes, self._precompute = whole, batch, precompute
        self._products: dict[Operator, Tensor] = {}
        self._columns: Tensor | None = None
        nodes, edges = sizes.nodes, sizes.edges
        host = torch.device("cpu")
        # scipy: ends as 32 bit, chosen, as a COO and as a CSR matrix; and the transpose, to see whether it is symmetric
        passing(31 * edges)
        self._order = torch.empty(2, nodes, dtype=torch.int64, device=host)
        self._x, self._y = whole.x.clone(), whole.y.clone()
        pattern = whole.adj.pattern
        passing(10 * pattern.nnz)  # the rows in their new order, before their columns are renumbered
        self._rows = torch.empty_like(pattern.col, device=host), torch.empty_like(pattern.rowptr, device=host)

    def batches(self, steps: int) -> Generator[Batch, None, None]:
        """Yield so many; others are made ahead."""
        waiting = [self._make() for _ in range(AHEAD)]
        for _ in range(steps):
            batch = self._make()
            yield batch if self._columns is None else batch.select_columns(self._columns)
        del waiting

    def select_columns(self, columns: Tensor) -> Clustered:
        """The same with some of the input features alone."""
        other = copy(self)
        other._columns = columns
        return other

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


def _nodes(sizes: GraphSizes) -> list[Tensor]:
    """Features, labels and the masks of the three splits."""
    y = torch.empty(sizes.nodes, sizes.classes) if sizes.multi_label else torch.empty(sizes.nodes, dtype=torch.int64)
    return [torch.empty(sizes.nodes, sizes.features), y, torch.empty(3, sizes.nodes, dtype=torch.bool)]


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
