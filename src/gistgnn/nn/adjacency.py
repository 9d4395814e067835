"""`Adjacency`: the structure of a graph or a batch, with the operators Ā that layers multiply by."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.nn.weights import check_weights, loop_weights, looped, row_sums, with_self, without_zeros

Operator = Literal["gcn", "mean", "sum"]
"""The operators Ā of an `Adjacency`, by the names of its attributes."""


class Adjacency:
    """The structure of a graph or a batch, with the operators that layers multiply by.

    Every operator is computed at its first use and kept. All layers and models that use one Adjacency share it.

    Args:
        edge_index: [2, E], row 0 the sources, row 1 the targets. A repeated edge counts several times.
        num_nodes: N.
        dtype: type of the operators' values; the same as the features'.
        edge_weight: [E], of the edges; None: 1. It is a constant, without a gradient.

    Attributes:
        edge_weight: [E], in the order of the pattern's entries; None: 1.

    Raises:
        InputError: ``edge_index`` is not an integer tensor [2, E], or contains a node outside 0..N-1; or
            ``edge_weight`` has another length. Operators that divide by sums of weights raise it for a negative one.
    """

    edge_weight: Tensor | None = None

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        dtype: torch.dtype = torch.float32,
        edge_weight: Tensor | None = None,
    ) -> None:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InputError(f"edge_index has shape {list(edge_index.shape)}: give [2, E], sources and targets")
        source, target = edge_index
        self.pattern, order = Pattern.from_entries(target, source, (num_nodes, num_nodes), names=("target", "source"))
        self.dtype = dtype
        if edge_weight is not None:
            if edge_weight.shape != source.shape:
                shape = list(edge_weight.shape)
                raise InputError(f"edge_weight has shape {shape}: give [{len(source)}], a weight for every edge")
            edge_weight = edge_weight.detach().to(dtype)
            self.edge_weight = edge_weight if order is None else edge_weight.index_select(0, order)
        self.cache_products(None)

    @classmethod
    def from_pattern(
        cls, pattern: Pattern, dtype: torch.dtype = torch.float32, edge_weight: Tensor | None = None
    ) -> Adjacency:
        """Return the graph whose edges are the entries (target, source) of ``pattern``: [N, N], without a copy.

        ``edge_weight``: [nnz], in the pattern's order; None: 1.
        """
        adjacency = cls.__new__(cls)
        adjacency.pattern, adjacency.dtype = pattern, dtype
        adjacency.edge_weight = None if edge_weight is None else edge_weight.to(dtype)
        adjacency.cache_products(None)
        return adjacency

    def with_cached_products(self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None) -> Adjacency:
        """Return the same structure with other cached products; see `cache_products`."""
        other = copy(self)
        other.cache_products(x, product)
        return other

    def layer(self, number: int) -> Adjacency:
        """Return the structure that layer ``number`` (from 0) sums over. Batches sampled by layers have several."""
        return self

    def cache_products(self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None) -> None:
        """From now on compute the product of an operator with the constant features ``x`` only once.

        ``x``: [N, F] is the tensor object itself, not an equal one; None: cache nothing. ``product`` returns it if it
        is not this graph's own product, such as the rows of a larger graph's product; None: compute it.
        """
        self._constant = x
        self._product = product  # no closure over this object: a cycle would hold every batch until it is collected
        self._products: dict[Operator, Tensor] = {}
        self._joined: dict[Operator, Tensor] = {}

    def caches(self, h: Tensor) -> bool:
        """Tell whether products with ``h`` are cached."""
        return h is self._constant

    def has_cached(self, operator: Operator) -> bool:
        """Tell whether the operator's product with the constant features has been computed."""
        return operator in self._products

    def aggregate(self, operator: Operator, h: Tensor) -> Tensor:
        """Return Ā h: [N, d], for ``h``: [N, d]; from the cache if it is there."""
        if not self.caches(h):
            return self._multiply(operator, h)
        if operator not in self._products:
            self._products[operator] = self._product(operator) if self._product else self._multiply(operator, h)
        return self._products[operator]

    def joined(self, operator: Operator, x: Tensor) -> Tensor:
        """Return [x, Ā x]: [N, 2F], for the constant features ``x``; it is cached as well."""
        if operator not in self._joined:
            product = self.aggregate(operator, x)
            self._joined[operator] = torch.cat([x[: len(product)], product], dim=1)
            self._products[operator] = self._joined[operator][:, x.shape[1] :]  # a view: not held twice
        return self._joined[operator]

    def _multiply(self, operator: Operator, h: Tensor) -> Tensor:
        matrix: SparseMatrix = getattr(self, operator)
        return matrix @ h

    @property
    def layers(self) -> int | None:
        """The number of layers that the structure is for; None: any number."""
        return None

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.pattern.shape[0]

    @property
    def num_edges(self) -> int:
        """E, with the given self-loops."""
        return self.pattern.nnz

    @property
    def device(self) -> torch.device:
        """The device of the structure."""
        return self.pattern.col.device

    @cached_property
    def gcn(self) -> SparseMatrix:
        """Ā = D̃^-1/2 (A + I) D̃^-1/2 of eq. 1: [N, N], with one self-loop per node and D̃ the in-degrees of A + I.

        With weights, A holds them, and a given self-loop keeps its own.
        """
        if self.edge_weight is not None:
            return self._weighted_gcn(self.edge_weight)
        pattern = self.attention
        scale = pattern.rowptr.diff().to(self.dtype).rsqrt()
        return SparseMatrix.from_pattern(pattern, pattern.repeated(scale).mul_(scale.index_select(0, pattern.col)))

    def _weighted_gcn(self, weight: Tensor) -> SparseMatrix:
        check_weights(weight)
        pattern, value = looped(self.pattern, weight, loop_weights(self.pattern, weight))
        scale = without_zeros(row_sums(pattern, value)).rsqrt()
        value.mul_(scale.index_select(0, pattern.row)).mul_(scale.index_select(0, pattern.col))
        return SparseMatrix.from_pattern(pattern, value)

    @cached_property
    def mean(self) -> SparseMatrix:
        """D^-1 A: [N, N], the (weighted) mean over the incoming edges; 0 for a node without incoming edges."""
        if self.edge_weight is not None:
            check_weights(self.edge_weight)
            scale = without_zeros(row_sums(self.pattern, self.edge_weight)).reciprocal()
            return SparseMatrix.from_pattern(self.pattern, self.edge_weight * scale.index_select(0, self.pattern.row))
        scale = self.pattern.rowptr.diff().to(self.dtype).reciprocal()
        return SparseMatrix.from_pattern(self.pattern, self.pattern.repeated(scale))

    @cached_property
    def sum(self) -> SparseMatrix:
        """A + I: [N, N], the (weighted) sum over the incoming edges, and the node itself."""
        return with_self(self.pattern, self.edge_weight, self.dtype)

    @cached_property
    def attention(self) -> Pattern:
        """The entries (target, source) that attention runs over: the edges, and every node with itself once."""
        return self.pattern.with_self_loops()

    def to(self, *args: Any, **kwargs: Any) -> Adjacency:
        """Return the graph on another device or with another dtype; arguments as for ``Tensor.to``."""
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.dtype == self.dtype and like.device == self.device:
            return self
        weight = None if self.edge_weight is None else self.edge_weight.to(like.device)
        return Adjacency.from_pattern(self.pattern.to(like.device), like.dtype, weight)

    def __repr__(self) -> str:
        return f"Adjacency(num_nodes={self.num_nodes}, num_edges={self.num_edges}, device='{self.device}')"


def as_adjacency(adj: Adjacency | Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Adjacency:
    """Return ``adj``, or the Adjacency of an ``edge_index``: [2, E], for features [num_nodes, F] of type ``dtype``.

    Raises:
        InputError: the Adjacency has another number of nodes or another dtype.
    """
    if isinstance(adj, Tensor):
        return Adjacency(adj, num_nodes, dtype)
    if adj.num_nodes != num_nodes:
        raise InputError(f"the graph has {adj.num_nodes} nodes and x {num_nodes} rows: give one row per node")
    if adj.dtype != dtype:
        raise InputError(f"the graph's operators are {adj.dtype} and x is {dtype}: use adj.to({dtype})")
    return adj
