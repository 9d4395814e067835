"""The graph and its batches, as tensors without values."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from gistgnn.nn.adjacency import Operator
from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.sampled import Degrees, SampledAdjacency
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.planning.ledger import Ledger, Work, bytes_of, filler
from gistgnn.planning.sizes import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import Batch, DrawnBatches, Sampling
from gistgnn.sampling.expected import Expected

_PYG = 25 * 2**20  # bytes of PyG's code
_WAITING = 2  # batches that wait while a step runs


class PlannedGraph:
    """Reads a graph, scales its features, moves it to the device and cuts out what training sees.

    Attributes:
        whole: the graph as evaluation sees it.
        seen: what training sees of it.
    """

    def __init__(self, config: RunConfig, sizes: GraphSizes) -> None:
        nodes = _node_tensors(sizes)
        edges = torch.empty(2, sizes.edges, dtype=torch.int64)
        self._on_host = [*nodes, edges]
        filler(sizes.edges * 9)  # keys of the edges, which are compared with their neighbours
        if sizes.reader == "pyg":  # and the arrays that it has parsed, which Python frees late
            self._on_host += [filler(_PYG), torch.empty_like(nodes[0]), torch.empty_like(edges)]
        if config.standardise:
            self._on_host[0] = torch.empty_like(nodes[0])
            filler(bytes_of(nodes[:1]))
        sparse = sizes.sparse and not config.standardise
        x, y = (tensor.to(config.device) for tensor in self._on_host[:2])
        self.whole = self.seen = Batch(x, edges.to(config.device), y, _indices(x, sizes.train), sparse=sparse)
        if config.inductive:
            part = sizes.training()
            # Which edges are inside, and the edges before they are renumbered.
            filler(3 * sizes.edges + 16 * part.edges, x.device)
            x, y, *_ = (tensor.to(config.device) for tensor in _node_tensors(part))
            inside = _indices(x, 2 * part.edges).view(2, -1)
            self.seen = Batch(x, inside, y, _indices(x, part.nodes), sparse=sparse)


class PlannedBatches(DrawnBatches):
    """Stands for the sampler of a run: its batches have the sizes of `Expected` and no values.

    Args:
        whole: what batches are cut out of.
        expected: their sizes.
        ledger: observes the steps of the first sub-GCN.
        sampling: how the run makes batches; None: every step sees the whole graph.

    Attributes:
        steps: what every observed step did.
    """

    def __init__(self, whole: Batch, expected: Expected, ledger: Ledger, sampling: Sampling | None) -> None:
        super().__init__(0, independent=sampling is not None and sampling.batches == "independent")
        self._whole, self._expected, self._ledger, self._cut = whole, expected, ledger, sampling is not None
        self.steps_per_epoch, self.steps, self._observes = expected.steps, list[Work](), True
        self._products: dict[Operator, Tensor] = {}
        if self._cut:
            self._prepare()

    def _prepare(self) -> None:
        """Hold what a sampler makes of the graph: a copy in another order, or its edges on the host."""
        whole, host = self._whole, torch.device("cpu")
        self._held: list[Any] = [whole.features]
        if not self._expected.sampled:
            filler(31 * whole.edge_index.shape[1])  # SciPy's copies of the edges, for METIS
            self._held.append(torch.empty(2, len(whole.x), dtype=torch.int64))
            self._x, self._y = whole.x.clone(), whole.y.clone()
            filler(10 * whole.adj.num_edges)  # the rows in their new order, before their columns are renumbered
        else:
            self._held.append(torch.empty(whole.adj.num_edges, dtype=torch.int8))  # the entries' ones, for SciPy
        if not self._expected.sampled or whole.x.device != host:
            pattern = whole.adj.pattern
            self._held += [torch.empty_like(ends, device=host) for ends in (pattern.col, pattern.rowptr)]

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield batches; of the first sub-GCN's steps note what they hold and compute."""
        waiting = [self._make(0) for _ in range(_WAITING)] if self._cut else []
        for batch in map(self._prepared, self._drawn(first_step, steps)):
            if self._observes:
                with self._ledger.observed(self._whole.x.device.type) as work:
                    yield batch
                self.steps.append(work)
            else:
                yield batch
        del waiting

    def for_sub_gcn(self, i: int) -> Self:
        """Return this sampler for the first sub-GCN, if batches are shared; else one like it."""
        return self if i == 0 and not self._independent else self._changed(_observes=i == 0)

    def select_columns(self, columns: Tensor) -> Self:
        """Return the same sampler with the input features ``columns`` alone."""
        return (
            super().select_columns(columns) if self._cut else self._changed(_whole=self._whole.select_columns(columns))
        )

    def _drawn(self, first_step: int, steps: int) -> Iterator[int]:
        return iter(range(steps if self._observes else 1))  # after one step the other sub-GCNs hold all that they will

    def _make(self, drawn: int) -> Batch:
        if not self._cut:
            return self._whole
        return self._sampled() if self._expected.sampled else self._subgraph()

    def _subgraph(self) -> Batch:
        nodes, product = self._expected.nodes[0], self._product if self._expected.precomputed else None
        pattern, loss_nodes = self._pattern(nodes, nodes, self._expected.edges[0]), self._expected.loss_nodes
        x, y = self._x[:nodes].clone(), self._y[:nodes].clone()
        return Batch(x, pattern, y, _indices(x, loss_nodes), product, self._whole.is_sparse)

    def _product(self, operator: Operator) -> Tensor:
        if operator not in self._products:
            product = getattr(self._whole.adj, operator) @ self._whole.x
            self._products[operator] = product.index_select(0, _indices(product, len(product)))
        return self._products[operator][: self._expected.nodes[0]].clone()

    def _sampled(self) -> Batch:
        nodes, edges = self._expected.nodes, self._expected.edges
        value = partial(torch.empty, device=self._whole.x.device)
        layers: list[SampledAdjacency] = []
        for outputs, inputs, count in zip(nodes[1:] or nodes, nodes, edges, strict=False):
            degrees = Degrees(value(inputs), value(inputs))
            layers.append(SampledAdjacency(self._pattern(outputs, inputs, count), degrees, value(count)))
        adj = SampledAdjacency(layers[0].pattern, layers[0].degrees, layers[0].weight, above=layers[1:])
        x, y = self._whole.x[: nodes[0]], self._whole.y[: nodes[-1]].clone()
        sparse = isinstance(self._whole.features, SparseMatrix)
        batch = Batch(x if sparse else x.clone(), adj, y, _indices(x, self._expected.loss_nodes))
        if sparse:  # only the entries of x take memory
            entries = round(self._whole.features.nnz * nodes[0] / len(self._whole.x))
            pattern = self._pattern(nodes[0], x.shape[1], entries)
            batch.__dict__["features"] = SparseMatrix.from_pattern(pattern, value(entries))
        return batch

    def _pattern(self, rows: int, columns: int, entries: int) -> Pattern:
        dtype = index_dtype(rows, columns, entries)
        device = self._whole.x.device
        rowptr, col = (torch.empty(size, dtype=dtype, device=device) for size in (rows + 1, entries))
        return Pattern(rowptr, col, (rows, columns))


def _node_tensors(sizes: GraphSizes) -> list[Tensor]:
    """Return features, labels and the masks of the three splits."""
    y = torch.empty(sizes.nodes, sizes.classes) if sizes.multi_label else torch.empty(sizes.nodes, dtype=torch.int64)
    return [torch.empty(sizes.nodes, sizes.features), y, torch.empty(3, sizes.nodes, dtype=torch.bool)]


def _indices(like: Tensor, count: int) -> Tensor:
    return torch.empty(count, dtype=torch.int64, device=like.device)
