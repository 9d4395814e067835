"""The structure of a batch whose edges are sampled, one for all layers or one for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix


@dataclass(frozen=True, eq=False)
class Degrees:
    """In-degrees of some nodes in the whole graph, [n] floating point each.

    Attributes:
        own: of A, self-loops as given.
        looped: of A + I, with one self-loop for each node.
        sums: the row sums of the whole graph's Ā (eq. 1), where rows are normalised; None: they are not.
    """

    own: Tensor
    looped: Tensor
    sums: Tensor | None = None

    def of(self, nodes: Tensor) -> Degrees:
        """Those of some of the nodes."""
        sums = None if self.sums is None else self.sums.index_select(0, nodes)
        return Degrees(self.own.index_select(0, nodes), self.looped.index_select(0, nodes), sums)

    def first(self, count: int) -> Degrees:
        """Those of the first nodes."""
        return Degrees(self.own[:count], self.looped[:count], None if self.sums is None else self.sums[:count])

    def to(self, device: torch.device) -> Degrees:
        """The same on another device."""
        sums = None if self.sums is None else self.sums.to(device)
        return Degrees(self.own.to(device), self.looped.to(device), sums)


class SampledAdjacency(Adjacency):
    """Sampled edges from input nodes to output nodes, with operators that estimate the whole graph's.

    An entry of an operator is that of the whole graph times the edge's weight. Where the weight is 1 / (probability
    that the edge is sampled), or stands for how often it was drawn against how often it should have been, the mean of
    Ā H over many samples is the whole graph's. A node's self-loop in Ā is there always, with weight 1.

    Args:
        pattern: [N_out, N_in], entries (target, source); the output nodes are the first of the input nodes.
        degrees: of the input nodes.
        weight: [nnz] of the pattern's entries; None: 1.
        above: the structures of the second layer, the third, ..., if each layer has its own.
        refuses: why models that attend, or take an edge_index, cannot be given these edges; None: they can.

    Rows are normalised where `Degrees.sums` is there: each is scaled so that it adds up to the whole graph's row
    (LADIES, section 3.2). That is not unbiased, and varies less.
    """

    def __init__(
        self,
        pattern: Pattern,
        degrees: Degrees,
        weight: Tensor | None = None,
        *,
        above: Sequence[SampledAdjacency] = (),
        refuses: str | None = None,
    ) -> None:
        self.pattern, self.degrees, self.weight = pattern, degrees, weight
        self.dtype, self.above, self._refuses = degrees.looped.dtype, tuple(above), refuses
        self.keep(None)

    def layer(self, number: int) -> Adjacency:
        """The structure that layer ``number`` sums over, 0 the first."""
        return self.above[number - 1] if number and self.above else self

    @property
    def layers(self) -> int | None:
        """For how many layers edges are sampled; None: the same for all."""
        return len(self.above) + 1 if self.above else None

    @property
    def num_nodes(self) -> int:
        """N_in."""
        return self.pattern.shape[1]

    @property
    def num_outputs(self) -> int:
        """Nodes for which the last layer gives an output."""
        return (self.above[-1] if self.above else self).pattern.shape[0]

    @property
    def edge_index(self) -> Tensor:
        """The edges of the first layer: [2, E] int64, sources over targets."""
        self._check("takes an edge_index")
        return torch.stack([self.pattern.col, self.pattern.row]).long()

    @cached_property
    def gcn(self) -> SparseMatrix:
        """The estimate of Ā = D̃^-1/2 (A + I) D̃^-1/2 (eq. 1): [N_out, N_in]."""
        pattern, weight = self._looped
        scale = self.degrees.looped.rsqrt()
        value = scale.index_select(0, pattern.row).mul_(scale.index_select(0, pattern.col))
        return self._matrix(pattern, value if weight is None else value.mul_(weight), self.degrees.sums)

    @cached_property
    def mean(self) -> SparseMatrix:
        """The estimate of D^-1 A: [N_out, N_in]."""
        scale = self.degrees.own[: self.pattern.shape[0]].reciprocal()
        value = scale.index_select(0, self.pattern.row)
        value = value if self.weight is None else value.mul_(self.weight)
        return self._matrix(self.pattern, value, None if self.degrees.sums is None else torch.ones_like(scale))

    @cached_property
    def attention(self) -> Pattern:
        """The edges, and every output node's to itself."""
        self._check("attends")
        return self._looped[0]

    @cached_property
    def _looped(self) -> tuple[Pattern, Tensor | None]:
        """The pattern with self-loops, and the weights."""
        pattern, keep, place = self.pattern.looped()
        if self.weight is None:
            return pattern, None
        weight = self.weight.new_ones(pattern.nnz)
        weight[place] = self.weight[keep]
        return pattern, weight

    def _matrix(self, pattern: Pattern, value: Tensor, sums: Tensor | None) -> SparseMatrix:
        matrix = SparseMatrix.from_pattern(pattern, value)
        if sums is None:
            return matrix
        found = (matrix @ value.new_ones(pattern.shape[1], 1)).squeeze(1)
        scale = torch.where(found > 0, sums[: len(found)] / found, 0)
        return SparseMatrix.from_pattern(pattern, value * scale.index_select(0, pattern.row))

    def _check(self, does: str) -> None:
        if self._refuses:
            raise InputError(f"the model {does}, which {self._refuses}")

    def to(self, *args: Any, **kwargs: Any) -> SampledAdjacency:
        """The structure on another device; arguments as for ``Tensor.to``."""
        device = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs).device
        if device == self.device:
            return self
        weight = None if self.weight is None else self.weight.to(device)
        above = [layer.to(device) for layer in self.above]
        return SampledAdjacency(
            self.pattern.to(device), self.degrees.to(device), weight, above=above, refuses=self._refuses
        )
