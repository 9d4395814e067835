"""The structure of a graph or a batch, with the operators Ā that layers multiply by."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, Literal, Self

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix

Operator = Literal["gcn", "mean"]
"""The operators Ā of an `Adjacency`, by the names of its attributes."""


class Adjacency:
    """The structure of a graph or a batch, with the operators that layers multiply by.

    Every operator is computed at its first use and kept: layers and models that are given the same Adjacency share it.

    Args:
        edge_index: [2, E], row 0 the sources, row 1 the targets; repeated edges count as often as they occur.
        num_nodes: N.
        dtype: type of the operators' values; that of the features.

    Raises:
        InputError: ``edge_index`` is not an integer tensor [2, E], or names a node outside 0..N-1.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> None:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index has shape {list(edge_index.shape)}: give [2, E], sources and targets")
        source, target = edge_index
        self.pattern, _ = Pattern.from_entries(target, source, (num_nodes, num_nodes), names=("target", "source"))
        self.dtype = dtype
        self.keep(None)

    @classmethod
    def from_pattern(cls, pattern: Pattern, dtype: torch.dtype = torch.float32) -> Adjacency:
        """The graph whose edges are the entries (target, source) of ``pattern``: [N, N], shared."""
        adjacency = cls.__new__(cls)
        adjacency.pattern, adjacency.dtype = pattern, dtype
        adjacency.keep(None)
        return adjacency

    def keeping(self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None) -> Self:
        """The same structure with other kept products; see `keep`."""
        other = copy(self)
        other.keep(x, product)
        return other

    def layer(self, number: int) -> Adjacency:
        """The structure that layer ``number`` sums over, 0 the first; the same for all, but in sampled batches."""
        return self

    def keep(self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None) -> None:
        """Keep the products of the operators with the constant features ``x``: [N, F], from their first use on.

        Args:
            x: the tensor itself, not one that is equal to it; None: of none.
            product: gives the product with an operator where it is not that of this graph's own, such as a part of
                a larger graph's.
        """
        self._constant = x
        self._product = product  # no closure over this object: a cycle would keep every batch until it is collected
        self._products: dict[Operator, Tensor] = {}
        self._joined: dict[Operator, Tensor] = {}

    def keeps(self, h: Tensor) -> bool:
        """Whether products with ``h`` are kept."""
        return h is self._constant

    def has_kept(self, operator: Operator) -> bool:
        """Whether the operator's product with the constant features has been computed."""
        return operator in self._products

    def aggregate(self, operator: Operator, h: Tensor) -> Tensor:
        """Ā h: [N, d], for ``h``: [N, d]; from memory where it is kept."""
        if self.keeps(h) and operator in self._products:
            return self._products[operator]
        if self.keeps(h) and self._product is not None:
            product = self._product(operator)
        else:
            matrix: SparseMatrix = getattr(self, operator)
            product = matrix @ h
        if self.keeps(h):
            self._products[operator] = product
        return product

    def joined(self, operator: Operator, x: Tensor) -> Tensor:
        """[x, Ā x]: [N, 2F], of the features ``x`` whose products are kept; it is kept too."""
        if operator not in self._joined:
            product = self.aggregate(operator, x)
            self._joined[operator] = torch.cat([x[: len(product)], product], dim=1)
            self._products[operator] = self._joined[operator][:, x.shape[1] :]  # not held twice
        return self._joined[operator]

    @property
    def layers(self) -> int | None:
        """For how many layers the structure is; None: for any number."""
        return None

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.pattern.shape[0]

    @property
    def num_edges(self) -> int:
        """E, self-loops as given."""
        return self.pattern.nnz

    @property
    def device(self) -> torch.device:
        """Where the structure lies."""
        return self.pattern.col.device

    @cached_property
    def gcn(self) -> SparseMatrix:
        """Ā = D̃^-1/2 (A + I) D̃^-1/2 of eq. 1: [N, N], with one self-loop per node and D̃ the in-degrees of A + I."""
        pattern = self.attention
        scale = pattern.rowptr.diff().to(self.dtype).rsqrt()
        return SparseMatrix.from_pattern(
            pattern, scale.index_select(0, pattern.row) * scale.index_select(0, pattern.col)
        )

    @cached_property
    def mean(self) -> SparseMatrix:
        """D^-1 A: [N, N], the mean over the incoming edges; 0 for a node without any."""
        scale = self.pattern.rowptr.diff().to(self.dtype).reciprocal()
        return SparseMatrix.from_pattern(self.pattern, scale.index_select(0, self.pattern.row))

    @cached_property
    def attention(self) -> Pattern:
        """The structure over which a node attends, by target: its sources and itself, once."""
        return self.pattern.with_self_loops()

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        """The graph on another device or with operators of another type; arguments as for ``Tensor.to``."""
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.dtype == self.dtype and like.device == self.device:
            return self
        return Adjacency.from_pattern(self.pattern.to(like.device), like.dtype)

    def __repr__(self) -> str:
        return f"Adjacency(num_nodes={self.num_nodes}, num_edges={self.num_edges}, device='{self.device}')"


def as_adjacency(adj: Adjacency | Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Adjacency:
    """``adj`` itself, or the Adjacency of an ``edge_index``: [2, E], for features of ``num_nodes`` rows and ``dtype``.

    Raises:
        InputError: an Adjacency of another number of nodes or another type.
    """
    if isinstance(adj, Tensor):
        return Adjacency(adj, num_nodes, dtype)
    if adj.num_nodes != num_nodes:
        raise InputError(f"the graph has {adj.num_nodes} nodes and x {num_nodes} rows: give one row per node")
    if adj.dtype != dtype:
        raise InputError(f"the graph's operators are {adj.dtype} and x is {dtype}: use adj.to({dtype})")
    return adj
