"""`Adjacency`: the edges of a graph or a batch, with the operators Ā that layers multiply by."""

from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR, check_sources, row_chunks
from gistgnn.nn.sparse import (
    AtVersion,
    SparseMatrix,
    check_weights,
    loop_weights,
    looped,
    row_sums,
    with_self,
    without_zeros,
)

Operator = Literal["gcn", "mean", "sum"]
"""The operators Ā of an `Adjacency`, by the names of its attributes."""

# Entries and rows of an operator that are computed at once, where not all of it is. Where nodes
# have few edges, the product of many rows would be large.
ENTRIES = 2**20
ROWS = 2**16


class Adjacency:
    """The structure of a graph or a batch, with the operators that layers multiply by.

    Every operator is computed at its first use and kept. All layers and models that use one
    Adjacency share it. For a graph that is larger than memory there is `rows`: it computes some
    rows of an operator whenever it is called, and keeps nothing larger than a number for each node.
    The values are the same bit for bit.

    Args:
        edge_index: [2, E], row 0 the sources, row 1 the targets. A repeated edge counts several
            times.
        num_nodes: N.
        dtype: type of the operators' values; the same as the features'.
        edge_weight: [E], of the edges. Defaults to 1. It is a constant, without a gradient.

    Attributes:
        pattern: the entries (target, source), [N, N].
        edge_weight: [E], in the order of the entries, or None where all weights are 1.
        layers: how many layers the structure is for, or None for any number.
    """

    pattern: CSR
    edge_weight: Tensor | None = None
    layers: int | None = None

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        dtype: torch.dtype = torch.float32,
        edge_weight: Tensor | None = None,
    ) -> None:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise InputError(
                f"edge_index has shape {list(edge_index.shape)}: give [2, E], sources and targets"
            )
        source, target = edge_index
        self.pattern, order = CSR.from_entries(
            target, source, (num_nodes, num_nodes), names=("target", "source")
        )
        self.dtype = dtype
        if edge_weight is not None:
            if edge_weight.shape != source.shape:
                shape = list(edge_weight.shape)
                raise InputError(
                    f"edge_weight has shape {shape}: give [{len(source)}], a weight for every edge"
                )
            edge_weight = edge_weight.detach().to(dtype)
            self.edge_weight = edge_weight if order is None else edge_weight.index_select(0, order)
        self.cache_products(None)

    @classmethod
    def from_csr(
        cls, edges: CSR, dtype: torch.dtype = torch.float32, edge_weight: Tensor | None = None
    ) -> "Adjacency":
        """Return the graph of entries (target, source), without a copy.

        ``edge_weight``, [E], is in the order of the entries.
        """
        adjacency = cls.__new__(cls)
        adjacency.pattern = edges
        adjacency.dtype = dtype
        adjacency.edge_weight = None if edge_weight is None else edge_weight.to(dtype)
        adjacency.cache_products(None)
        return adjacency

    def layer(self, number: int) -> "Adjacency":
        """Return the structure that layer ``number`` (from 0) sums over.

        Batches sampled by layers have several.
        """
        return self

    def with_cached_products(
        self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None
    ) -> "Adjacency":
        """Return the same structure with other cached products; see `cache_products`."""
        other = copy(self)
        other.cache_products(x, product)
        return other

    def cache_products(
        self, x: Tensor | None, product: Callable[[Operator], Tensor] | None = None
    ) -> None:
        """From now on compute the product of an operator with constant features only once.

        Args:
            x: the features, [N, F]: this tensor object, not an equal one. None ends the caching.
            product: returns the product for an operator, where it is not this graph's own: it may
                be rows of a larger graph's product. Defaults to computing it.
        """
        self._constant = None if x is None else AtVersion(x)
        # This is no closure over this object: a cycle would hold every batch until it is collected.
        self._product = product
        self.products: dict[Operator, Tensor] = {}
        self._joined: dict[Operator, Tensor] = {}

    def is_constant(self, h: object) -> bool:
        """Tell whether ``h`` is the constant features, with the values that they had."""
        return self._constant is not None and self._constant.is_same(h)

    def aggregate(self, operator: Operator, h: Tensor) -> Tensor:
        """Return Ā h, [N, d], for ``h``, [N, d]: a new tensor, or a copy of the cached one."""
        product = self.cached_product(operator, h)
        return getattr(self, operator) @ h if product is None else product.clone()

    def cached_product(self, operator: Operator, h: Tensor) -> Tensor | None:
        """Return Ā h, [N, d], from the cache, or None if ``h`` is not the constant features.

        It is for reading only.
        """
        if not self.is_constant(h):
            return None
        if operator not in self.products:
            self.products[operator] = (
                self._product(operator) if self._product else getattr(self, operator) @ h
            )
        return self.products[operator]

    def joined(self, operator: Operator, x: Tensor) -> Tensor:
        """Return [x, Ā x], [N, 2F], of the constant features ``x``.

        It is cached, and for reading only.
        """
        if operator not in self._joined:
            product = self.cached_product(operator, x)
            assert product is not None
            self._joined[operator] = torch.cat([x[: len(product)], product], dim=1)
            # A view, so that the product is not in memory twice.
            self.products[operator] = self._joined[operator][:, x.shape[1] :]
        return self._joined[operator]

    @property
    def num_nodes(self) -> int:
        return self.pattern.shape[0]

    @property
    def num_edges(self) -> int:
        """E, the self-loops of the graph included."""
        return self.pattern.num_edges

    @property
    def device(self) -> torch.device:
        return self.pattern.col.device

    @cached_property
    def gcn(self) -> SparseMatrix:
        """Ā = D̃^-1/2 (A + I) D̃^-1/2 of eq. 1: [N, N], with one self-loop per node.

        A self-loop of the graph keeps its weight.
        """
        return self._rows("gcn", None)

    @cached_property
    def mean(self) -> SparseMatrix:
        """D^-1 A: [N, N], the (weighted) mean over the incoming edges, or 0 without such edges."""
        return self._rows("mean", None)

    @cached_property
    def sum(self) -> SparseMatrix:
        """A + I: [N, N], the (weighted) sum over the incoming edges, and the node itself."""
        return self._rows("sum", None)

    @cached_property
    def attention(self) -> CSR:
        """The entries (target, source) of attention: the edges, and every node with itself once."""
        return self.pattern.for_products().looped()[0]

    def rows(self, operator: Operator, nodes: slice | Tensor) -> SparseMatrix:
        """Return some rows of an operator: [k, N].

        They are computed now, unless the whole operator has been computed already.

        Args:
            operator: its name.
            nodes: consecutive ones, or [k] by number.
        """
        computed = self.__dict__.get(operator)
        return self._rows(operator, nodes) if computed is None else computed.rows(nodes)

    def chunks(self) -> Iterator[slice]:
        """Yield at most `ROWS` consecutive rows with at most `ENTRIES` edges, or one row."""
        return row_chunks(self.pattern.rowptr, ROWS, ENTRIES)

    @cached_property
    def _scale(self) -> Tensor:
        """D̃^-1/2: [N]."""
        return torch.cat([self._degrees(*self._looped(nodes)).rsqrt() for nodes in self.chunks()])

    def _degrees(self, pattern: CSR, weight: Tensor | None) -> Tensor:
        """Return the number, or the sum of the weights, of the entries in every row: [k]."""
        if weight is None:
            return pattern.rowptr.diff().to(self.dtype)
        return without_zeros(row_sums(pattern, weight))

    def _rows(self, operator: Operator, nodes: slice | Tensor | None) -> SparseMatrix:
        """Compute some rows of an operator, [k, N], or all of them where ``nodes`` is None."""
        if operator == "gcn":
            pattern, weight = self._looped(nodes)
            row_scale = self._degrees(pattern, weight).rsqrt()
            column_scale = row_scale if nodes is None else self._scale
            value = pattern.repeated(row_scale)
            if weight is not None:
                value.mul_(weight)
            value.mul_(column_scale.index_select(0, pattern.col))
            return SparseMatrix.from_pattern(pattern, value)
        pattern, weight, numbers = self._entries(nodes)
        if operator == "sum":
            return with_self(pattern, weight, self.dtype, numbers)
        if weight is not None:
            check_weights(weight)
        value = pattern.repeated(self._degrees(pattern, weight).reciprocal())
        if weight is not None:
            value.mul_(weight)
        return SparseMatrix.from_pattern(pattern, value)

    def _entries(self, nodes: slice | Tensor | None) -> tuple[CSR, Tensor | None, Tensor | None]:
        """Return some rows of A, their weights, and the numbers of their nodes.

        The weights are None where they are 1, and the numbers are None for all nodes.
        """
        if nodes is None:
            return self.pattern.for_products(), self.edge_weight, None
        pattern, entries = self.pattern.rows(nodes)
        check_sources(pattern.col, self.num_nodes)
        if isinstance(nodes, slice):
            numbers = torch.arange(nodes.start, nodes.stop, device=self.device)
        else:
            numbers = nodes
        weight = None if self.edge_weight is None else self.edge_weight[entries]
        return pattern.for_products(), weight, numbers

    def _looped(self, nodes: slice | Tensor | None) -> tuple[CSR, Tensor | None]:
        """Return some rows of A + I, and their weights, or None where these are 1."""
        pattern, weight, numbers = self._entries(nodes)
        if weight is None:
            return self.attention if nodes is None else pattern.looped(numbers)[0], None
        check_weights(weight)
        return looped(pattern, weight, loop_weights(pattern, weight, numbers), numbers)

    def to(self, *args: Any, **kwargs: Any) -> "Adjacency":
        """Return the graph on another device or with another dtype, as ``Tensor.to``."""
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.dtype == self.dtype and like.device == self.device:
            return self
        weight = None if self.edge_weight is None else self.edge_weight.to(like.device)
        return Adjacency.from_csr(self.pattern.to(like.device), like.dtype, weight)
