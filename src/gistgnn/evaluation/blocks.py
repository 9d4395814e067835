"""Blocks of nodes: the nodes that a layer computes at a time, with the edges that they need."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gistgnn.evaluation.budget import LayerCosts
from gistgnn.graphs.csr import CSR, check_sources, row_chunks
from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.nn.adjacency import ENTRIES, Operator
from gistgnn.utils.tensors import row_pieces

MOST = 0.75
"""The share of the nodes above which all are computed: that reads the disk in order."""


@dataclass(frozen=True, eq=False)
class RequiredNodes:
    """The nodes that a layer computes.

    Of a graph in a folder of clusters these may be few, where few nodes are scored.

    Args:
        adj: the graph, on the host.
        inputs: how many nodes the layer's input has.
        nodes: [n], in ascending order. Defaults to all nodes.
        places: [N] int32, the place of every node among those of the input. Defaults to the nodes'
            numbers.
    """

    adj: Adjacency
    inputs: int
    nodes: Tensor | None = None
    places: Tensor | None = None

    def __len__(self) -> int:
        return self.adj.num_nodes if self.nodes is None else len(self.nodes)

    @cached_property
    def rowptr(self) -> Tensor:
        """Where the edges into each of these nodes begin: [n + 1]."""
        return self.adj.pattern.rowptr if self.nodes is None else _rowptr(self.adj, self.nodes)

    @cached_property
    def scratch(self) -> Tensor:
        """A number for every node of the layer's input, for a block to write: [inputs].

        It has no meaning afterwards.
        """
        return torch.empty(self.inputs, dtype=torch.int64)

    def numbers(self, rows: slice) -> slice | Tensor:
        """Return some of these nodes, by their numbers in the graph."""
        return rows if self.nodes is None else self.nodes[rows]

    def inputs_of(self, nodes: Tensor) -> Tensor:
        """Return the places of some nodes, by number, in the layer's input: [n] int64."""
        return nodes.long() if self.places is None else self.places.index_select(0, nodes).long()

    def places_of(self, rows: slice) -> slice | Tensor:
        """Return the places of some of these nodes in the layer's input."""
        return rows if self.nodes is None else self.inputs_of(self.nodes[rows])

    def blocks(self, costs: LayerCosts, work: int) -> "Iterator[tuple[slice, Block]]":
        """Yield consecutive nodes with their block, which takes at most ``work`` bytes.

        A block of one node may take more.
        """
        count = len(self)
        most_edges = work // costs.edge
        # Where the edges into every node begin, if each node has a self-loop more.
        begins = (self.rowptr.long() + torch.arange(count + 1)).numpy()
        start = 0
        step = count
        while start < count:
            by_edges = int(begins.searchsorted(begins[start] + most_edges, side="right")) - 1
            by_rows = start + work // max(costs.row, 1)
            stop = min(start + step, by_edges, by_rows, count)
            rows = slice(start, max(stop, start + 1))
            step = rows.stop - rows.start
            block = Block(self, rows, costs.hops, most_edges)
            needed = costs.bytes(step, 0, block.num_entries)
            # Finding the sources takes a while: a block that is too large already is spared it.
            if costs.source and (step == 1 or needed <= work):
                needed += costs.source * len(block.nodes)
            if step > 1 and needed > work:  # Try fewer nodes.
                step = max(min(step * work // needed, step * 7 // 8), 1)
                continue
            yield rows, block
            start = rows.stop
            # The next block has as many nodes, or more where this one has left room.
            step = max(step * work // needed, step)

    def pieces(self, costs: LayerCosts, work: int) -> Iterator[slice]:
        """Yield consecutive nodes that take at most ``work`` bytes without their edges.

        A single node may take more.
        """
        return row_pieces(len(self), costs.row, work)


class Block:
    """Some nodes that a layer computes, with all edges into them and the sources of these edges.

    A layer that sums over several hops needs the edges into these sources as well. Then they are
    among the targets of the block, which come after the nodes that are computed.

    Args:
        required: all nodes that the layer computes.
        rows: which of these.
        hops: how many edges away a node may be that a computed node depends on.
        most_edges: a block of several nodes with more edges is too large, and is not completed.
            Defaults to any number.

    Attributes:
        count: k, how many nodes are computed.
        places: of these nodes in the layer's input.
        hops: as given.
    """

    def __init__(
        self, required: RequiredNodes, rows: slice, hops: int = 1, most_edges: int | None = None
    ) -> None:
        self._required = required
        self._targets = required.numbers(rows)  # [t] by number, or a range
        self.count = rows.stop - rows.start
        self.places = required.places_of(rows)
        self.hops = hops
        for _ in range(1, hops):
            if self.count > 1 and most_edges is not None and self.num_entries > most_edges:
                break
            self._targets = _with_sources(required.adj, self._targets)

    @property
    def num_entries(self) -> int:
        """The edges into the targets, and a self-loop for each of them."""
        if isinstance(self._targets, slice):
            start = self._targets.start
            stop = self._targets.stop
            rowptr = self._required.adj.pattern.rowptr
            return int(rowptr[stop] - rowptr[start]) + stop - start
        return int(_rowptr(self._required.adj, self._targets)[-1]) + len(self._targets)

    @cached_property
    def _edges(self) -> tuple[CSR, slice | Tensor]:
        """The edges by target, from nodes by number, [t, N]; and their index among the graph's."""
        adj = self._required.adj
        edges, entries = adj.pattern.rows(self._targets)
        check_sources(edges.col, adj.num_nodes)
        return edges, entries

    @property
    def entries(self) -> slice | Tensor:
        """The index of the edges among those of the graph."""
        return self._edges[1]

    @cached_property
    def nodes(self) -> Tensor:
        """The places of the block's nodes in the layer's input: [n].

        First come the targets, of which those that are computed are first, then their other
        sources, in ascending order.
        """
        inputs = self._required.inputs_of(self._edges[0].col)
        scratch = self._required.scratch
        # Every source once: of equal places one is written last, and reads its own number.
        numbers = torch.arange(len(inputs))
        scratch[inputs] = numbers
        sources = inputs[scratch[inputs] == numbers].sort().values
        targets = self._places_of_targets()
        scratch[sources] = 0
        scratch[targets] = 1
        return torch.cat([targets, sources[scratch[sources] == 0]])

    @cached_property
    def pattern(self) -> CSR:
        """The edges by target, from nodes of the block: [t, n]."""
        return self._renumbered(self._edges[0])

    def rows(self, operator: Operator) -> SparseMatrix:
        """Return the targets' rows of the whole graph's operator: [t, n].

        They multiply features of the block's nodes.
        """
        matrix = self._required.adj.rows(operator, self._targets)
        return SparseMatrix.from_pattern(self._renumbered(matrix.pattern), matrix.value)

    def rows_of_inputs(self, operator: Operator) -> SparseMatrix:
        """Return the targets' rows of the whole graph's operator: [t, inputs].

        They multiply the layer's whole input.
        """
        required = self._required
        matrix = required.adj.rows(operator, self._targets)
        if required.places is None:
            return matrix
        col = required.inputs_of(matrix.pattern.col).to(matrix.pattern.col.dtype)
        return SparseMatrix.from_pattern(
            CSR(matrix.pattern.rowptr, col, (matrix.shape[0], required.inputs)), matrix.value
        )

    def attention_of_inputs(self) -> CSR:
        """Return the entries of attention, from the whole input of the layer: [t, inputs]."""
        pattern = self._edges[0].for_products()
        col = self._required.inputs_of(pattern.col).to(pattern.col.dtype)
        shape = (pattern.shape[0], self._required.inputs)
        return CSR(pattern.rowptr, col, shape).looped(self._places_of_targets())[0]

    def _places_of_targets(self) -> Tensor:
        """Return the places of the targets in the layer's input: [t]."""
        if isinstance(self._targets, slice):
            return torch.arange(self._targets.start, self._targets.stop)
        return self._required.inputs_of(self._targets)

    def _renumbered(self, pattern: CSR) -> CSR:
        """Return edges from the graph's nodes, [t, N], as edges from the block's nodes, [t, n]."""
        scratch = self._required.scratch
        scratch[self.nodes] = torch.arange(len(self.nodes))
        col = scratch[self._required.inputs_of(pattern.col)].to(pattern.col.dtype)
        return CSR(pattern.rowptr, col, (pattern.shape[0], len(self.nodes)))


class BlockAdjacency(Adjacency):
    """The edges of a block, with the whole graph's operators: for layers of `gistgnn.nn`.

    It leads from all nodes of the block, [n], to the computed ones, [k]. Where a layer sums over
    several hops it leads to all nodes, [n], as a sum is the input of the next one; those that are
    no targets have no edges then.

    Args:
        block: the edges.
        dtype: of the operators.
        device: of the model.
    """

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        self._block = block
        self._device = device
        self.pattern = self._completed(block.pattern)
        self.dtype = dtype
        self.cache_products(None)

    @cached_property
    def gcn(self) -> SparseMatrix:
        return self._operator("gcn")

    @cached_property
    def mean(self) -> SparseMatrix:
        return self._operator("mean")

    @cached_property
    def sum(self) -> SparseMatrix:
        return self._operator("sum")

    @cached_property
    def attention(self) -> CSR:
        return super().attention.to(self._device)

    def _operator(self, name: Operator) -> SparseMatrix:
        rows = self._block.rows(name)
        matrix = SparseMatrix.from_pattern(self._completed(rows.pattern), rows.value)
        return matrix.to(self._device)

    def _completed(self, pattern: CSR) -> CSR:
        """Return the entries [t, n], and for several hops empty rows after them: [n, n]."""
        if self._block.hops == 1:
            return pattern
        rows, columns = pattern.shape
        rowptr = torch.cat([pattern.rowptr, pattern.rowptr[-1:].expand(columns - rows)])
        return CSR(rowptr, pattern.col, (columns, columns))


def required_nodes(
    hops: Sequence[int], adj: Adjacency, wanted: Tensor | None
) -> list[RequiredNodes]:
    """Return the nodes that each layer computes.

    Args:
        hops: of each layer, see `Block`.
        adj: the graph, on the host.
        wanted: mask [N] of the nodes whose output is wanted. Defaults to all nodes.
    """
    required = [RequiredNodes(adj, adj.num_nodes)] * len(hops)
    if wanted is None:
        return required
    # The nodes that the layer above reads; then the sources of the edges into them as well.
    chosen = wanted.cpu().clone()
    for index in reversed(range(len(hops))):
        if int(chosen.sum()) > MOST * adj.num_nodes:
            break
        nodes = chosen.nonzero().squeeze(1)
        for _ in range(hops[index]):
            _add_sources(adj, chosen)
        inputs = adj.num_nodes
        places = None
        if index and int(chosen.sum()) <= MOST * inputs:
            places = (chosen.cumsum(0) - 1).int()
            inputs = int(chosen.sum())
        required[index] = RequiredNodes(adj, inputs, nodes, places)
    return required


def _add_sources(adj: Adjacency, chosen: Tensor) -> None:
    """Add the sources of the edges into some nodes to a mask of these: [N]."""
    nodes = chosen.nonzero().squeeze(1)
    for rows in row_chunks(_rowptr(adj, nodes), len(nodes), ENTRIES):
        edges, _ = adj.pattern.rows(nodes[rows])
        check_sources(edges.col, adj.num_nodes)
        chosen[edges.col.long()] = True


def _with_sources(adj: Adjacency, nodes: slice | Tensor) -> Tensor:
    """Return some nodes, by number, and then the other sources of the edges into them: [n]."""
    edges, _ = adj.pattern.rows(nodes)
    check_sources(edges.col, adj.num_nodes)
    numbers = torch.arange(nodes.start, nodes.stop) if isinstance(nodes, slice) else nodes
    sources = edges.col.long().unique()
    return torch.cat([numbers, sources[~torch.isin(sources, numbers)]])


def _rowptr(adj: Adjacency, nodes: Tensor) -> Tensor:
    """Return where the edges into each of some nodes begin, if they lie one after another."""
    degrees = adj.pattern.rowptr[nodes + 1] - adj.pattern.rowptr[nodes]
    return torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
