"""The nodes that each layer has to compute, where few nodes of a graph in a folder of clusters are scored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gistgnn.graphs import CSR
from gistgnn.graphs.csr import check_sources, row_chunks
from gistgnn.nn import SparseMatrix
from gistgnn.nn.adjacency import ENTRIES, Adjacency, Operator
from gistgnn.nn.gnn import GNN, Propagation

MOST = 0.75  # share of the nodes; above it all are computed, which reads the disk in order


@dataclass(frozen=True, eq=False)
class RequiredNodes:
    """The nodes that a layer computes, and the rows of operators for them."""

    adj: Adjacency
    nodes: Tensor | None  # [n], in ascending order; None: all
    place: Tensor | None  # [N] int32, the place of a node among the nodes of the layer's input; None: its number
    inputs: int  # how many nodes the input has

    @cached_property
    def rowptr(self) -> Tensor:
        """Where the edges into each of these nodes begin: [n + 1]."""
        return self.adj.pattern.rowptr if self.nodes is None else _rowptr(self.adj, self.nodes)

    @cached_property
    def own(self) -> Tensor | None:
        """The places of these nodes in the layer's input: [n]; None: they are the same nodes."""
        if self.nodes is None or self.place is None:
            return self.nodes
        return self.place[self.nodes].long()

    def __len__(self) -> int:
        """Return n."""
        return self.adj.num_nodes if self.nodes is None else len(self.nodes)

    def rows(self, operator: Operator, rows: slice) -> SparseMatrix:
        """Return an operator's rows of some of these nodes, which are not all: [k, inputs]."""
        assert self.nodes is not None
        matrix = self.adj.rows(operator, self.nodes[rows])
        if self.place is None:
            return matrix
        col = self.place.index_select(0, matrix.pattern.col).to(matrix.pattern.col.dtype)
        return SparseMatrix.from_pattern(CSR(matrix.pattern.rowptr, col, (matrix.shape[0], self.inputs)), matrix.value)


def required_nodes(gnn: GNN, adj: Adjacency, wanted: Tensor | None) -> list[RequiredNodes]:
    """Return the nodes that each layer computes; ``wanted``: mask [N] of those whose output is wanted; None: all."""
    required = [RequiredNodes(adj, None, None, adj.num_nodes)] * len(gnn.convs)
    if wanted is None or not adj.by_rows or not all(isinstance(layer, Propagation) for layer in gnn.convs):
        return required
    chosen = wanted.cpu().clone()  # the nodes that the layer above needs; then also the sources of their edges
    for index in reversed(range(len(required))):
        if int(chosen.sum()) > MOST * adj.num_nodes:
            break
        nodes = chosen.nonzero().squeeze(1)
        for rows in row_chunks(_rowptr(adj, nodes), len(nodes), ENTRIES):
            edges, _ = adj.pattern.rows(nodes[rows])
            check_sources(edges.col, adj.num_nodes)
            chosen[edges.col.long()] = True
        place, inputs = None, adj.num_nodes
        if index and int(chosen.sum()) <= MOST * inputs:
            place, inputs = (chosen.cumsum(0) - 1).int(), int(chosen.sum())
        required[index] = RequiredNodes(adj, nodes, place, inputs)
    return required


def _rowptr(adj: Adjacency, nodes: Tensor) -> Tensor:
    degrees = adj.pattern.rowptr[nodes + 1] - adj.pattern.rowptr[nodes]
    return torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
