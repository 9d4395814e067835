"""The nodes that evaluation by layers computes, where few nodes of a graph in a folder are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gistgnn.nn import SparseMatrix
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.gnn import GNN, Propagation
from gistgnn.nn.pattern import Pattern, row_chunks
from gistgnn.nn.stored_adjacency import ENTRIES, StoredAdjacency

MOST = 0.75  # share of the nodes; above it all are computed, which reads the disk in order


@dataclass(frozen=True, eq=False)
class Computed:
    """What one layer computes.

    Attributes:
        adj: the graph, or `NeededRows`: it has the rows of the nodes that are computed.
        rowptr: [n + 1], where the edges into each of these nodes begin.
        own: [n], their places among the nodes that the layer's input has; None: they are the same nodes.
        inputs: how many nodes the input has.
        nodes: [n], their numbers in the graph; None: all nodes.
    """

    adj: Any
    rowptr: Tensor
    own: Tensor | None
    inputs: int
    nodes: Tensor | None

    @classmethod
    def everything(cls, adj: Adjacency) -> Computed:
        """Return that all nodes of a graph are computed."""
        return cls(adj, adj.pattern.rowptr, None, adj.num_nodes, None)

    def __len__(self) -> int:
        """Return n."""
        return len(self.rowptr) - 1


def computed_nodes(gnn: GNN, adj: Adjacency, wanted: Tensor | None) -> list[Computed]:
    """Return what each layer of a model computes.

    Args:
        gnn: the model.
        adj: the graph's structure.
        wanted: mask [N] of the nodes whose output is wanted; None: all.
    """
    everything = Computed.everything(adj)
    layers = list(gnn.convs)
    if wanted is None or not isinstance(adj, StoredAdjacency) or not all(isinstance(x, Propagation) for x in layers):
        return [everything] * len(layers)
    sets: list[Tensor | None] = []  # of the last layer first
    chosen: Tensor | None = wanted.cpu()
    for _ in layers:
        if chosen is not None and int(chosen.sum()) > MOST * adj.num_nodes:
            chosen = None
        sets.insert(0, None if chosen is None else chosen.nonzero().squeeze(1))
        if chosen is not None:
            chosen = _with_sources(adj, chosen)
    return [
        everything if nodes is None else _computed(adj, nodes, before)
        for nodes, before in zip(sets, [None, *sets[:-1]], strict=True)
    ]


class NeededRows:
    """The operators of a graph in a file, for the rows of some nodes; columns are the places of others.

    Args:
        adj: the graph.
        nodes: [n], of the rows, ascending.
        place: [N], of each node among the columns; None: its number.
        columns: how many columns there are.
    """

    def __init__(self, adj: StoredAdjacency, nodes: Tensor, place: Tensor | None, columns: int) -> None:
        self._adj, self._nodes, self._place, self._columns = adj, nodes, place, columns

    def __getattr__(self, operator: str) -> NeededOperator:
        if operator not in ("gcn", "mean", "sum"):
            raise AttributeError(operator)
        return NeededOperator(self, operator)

    def rows(self, operator: str, rows: slice) -> SparseMatrix:
        """Return some of the rows of an operator: [k, columns]."""
        matrix: SparseMatrix = getattr(self._adj, operator).rows(self._nodes[rows])
        if self._place is None:
            return matrix
        col = self._place.index_select(0, matrix.pattern.col).to(matrix.pattern.col.dtype)
        pattern = Pattern(matrix.pattern.rowptr, col, (matrix.shape[0], self._columns))
        return SparseMatrix.from_pattern(pattern, matrix.value)


@dataclass(frozen=True)
class NeededOperator:
    """An operator of `NeededRows`."""

    of: NeededRows
    name: str

    def rows(self, rows: slice) -> SparseMatrix:
        """Return some of the rows: [k, columns]."""
        return self.of.rows(self.name, rows)


def _with_sources(adj: StoredAdjacency, chosen: Tensor) -> Tensor:
    """Return the mask of some nodes and of all sources of the edges into them."""
    nodes = chosen.nonzero().squeeze(1)
    found = chosen.clone()
    for rows in row_chunks(_rowptr(adj, nodes), len(nodes), ENTRIES):
        found[adj.pattern.read(nodes[rows])[0].col.long()] = True
    return found


def _computed(adj: StoredAdjacency, nodes: Tensor, before: Tensor | None) -> Computed:
    if before is None:
        return Computed(NeededRows(adj, nodes, None, adj.num_nodes), _rowptr(adj, nodes), nodes, adj.num_nodes, nodes)
    place = torch.zeros(adj.num_nodes, dtype=torch.int32)
    place[before] = torch.arange(len(before), dtype=torch.int32)
    rows = NeededRows(adj, nodes, place, len(before))
    return Computed(rows, _rowptr(adj, nodes), place[nodes].long(), len(before), nodes)


def _rowptr(adj: StoredAdjacency, nodes: Tensor) -> Tensor:
    degrees = adj.pattern.rowptr[nodes + 1] - adj.pattern.rowptr[nodes]
    return torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
