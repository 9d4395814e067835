"""`SampledAdjacency`: the sampled edges of a batch, for all layers or for each of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR
from gistgnn.nn.adjacency import Adjacency
from gistgnn.nn.sparse import SparseMatrix, looped, row_sums, with_self
from gistgnn.utils.tensors import to_device


@dataclass(frozen=True, eq=False)
class Degrees:
    """In-degrees of some nodes in the whole graph, or the sums of their edges' weights.

    Attributes:
        plain: in A, with the self-loops of the graph: floating-point, [n].
        looped: in A + I, with one self-loop per node: [n].
        row_sums: of the whole graph's Ā (eq. 1), [n], or None where rows are not normalised.
        loops: the weights of the nodes' self-loops in A + I, [n], or None where these are 1.
    """

    plain: Tensor
    looped: Tensor
    row_sums: Tensor | None = None
    loops: Tensor | None = None

    def of(self, nodes: Tensor | slice) -> "Degrees":
        """Return the degrees of some of these nodes."""
        return self._map(lambda tensor: tensor[nodes])

    def to(self, device: torch.device, dtype: torch.dtype) -> "Degrees":
        return self._map(lambda tensor: to_device(tensor, device).to(dtype))

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Degrees":
        row_sums = None if self.row_sums is None else change(self.row_sums)
        loops = None if self.loops is None else change(self.loops)
        return Degrees(change(self.plain), change(self.looped), row_sums, loops)


class SampledAdjacency(Adjacency):
    """Sampled edges from input nodes to output nodes, with estimates of the graph's operators.

    Args:
        pattern: the edges, [outputs, inputs]. The output nodes are the first input nodes.
        degrees: of the input nodes. `Degrees.row_sums` scale every row to the whole graph's sum
            (LADIES, section 3.2): that is biased, with less variance.
        weight: [nnz]. An operator's entry is the whole graph's times this weight; with one over the
            edge's chance, Ā H is unbiased.
        above: the higher layers' structures, if every layer has its own.
        refuses: the end of the error for models that attend or take an edge_index. Defaults to no
            error: they can use these edges.
    """

    def __init__(
        self,
        pattern: CSR,
        degrees: Degrees,
        weight: Tensor,
        *,
        above: "Sequence[SampledAdjacency]" = (),
        refuses: str | None = None,
    ) -> None:
        self.pattern = pattern
        self.degrees = degrees
        self.dtype = degrees.looped.dtype
        self.above = tuple(above)
        self._refuses = refuses
        self.weight = weight.to(self.dtype)  # Those of a sampler are float32.
        self.layers = len(above) + 1 if above else None  # None where all layers share the edges.
        self.cache_products(None)

    def layer(self, number: int) -> Adjacency:
        return self.above[number - 1] if number and self.above else self

    @property
    def num_nodes(self) -> int:
        return self.pattern.shape[1]

    @property
    def num_outputs(self) -> int:
        """Nodes with an output of the last layer."""
        return (self.above[-1] if self.above else self).pattern.shape[0]

    @property
    def edge_index(self) -> Tensor:
        """The edges of the first layer: [2, E] int64, row 0 the sources."""
        self._check("takes an edge_index")
        return self.pattern.edge_index()

    @cached_property
    def gcn(self) -> SparseMatrix:
        pattern, weight = self._with_loops
        scale = self.degrees.looped.rsqrt()
        value = scale.index_select(0, pattern.row).mul_(scale.index_select(0, pattern.col))
        return _scaled(pattern, value.mul_(weight), self.degrees.row_sums)

    @cached_property
    def mean(self) -> SparseMatrix:
        scale = self.degrees.plain[: self.pattern.shape[0]].reciprocal()
        sums = None if self.degrees.row_sums is None else torch.ones_like(scale)
        return _scaled(
            self.pattern, scale.index_select(0, self.pattern.row).mul_(self.weight), sums
        )

    @cached_property
    def sum(self) -> SparseMatrix:
        matrix = with_self(self.pattern, self.weight, self.dtype)
        plain = self.degrees.plain
        sums = None if self.degrees.row_sums is None else torch.where(plain.isinf(), 0, plain) + 1
        return _scaled(matrix.pattern, matrix.value, sums)

    @cached_property
    def attention(self) -> CSR:
        """The entries of attention: the edges, and every output node with itself once."""
        self._check("attends")
        return self._with_loops[0]

    @cached_property
    def _with_loops(self) -> tuple[CSR, Tensor]:
        loops = self.degrees.loops
        return looped(
            self.pattern, self.weight, None if loops is None else loops[: self.pattern.shape[0]]
        )

    def _check(self, does: str) -> None:
        if self._refuses:
            raise InputError(f"the model {does}, which {self._refuses}")

    def to(self, *args: Any, **kwargs: Any) -> "SampledAdjacency":
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.dtype == self.dtype and like.device == self.device:
            return self
        pattern = self.pattern.to(like.device)
        degrees = self.degrees.to(like.device, like.dtype)
        weight = to_device(self.weight, like.device)
        above = [layer.to(like.device, like.dtype) for layer in self.above]
        return SampledAdjacency(pattern, degrees, weight, above=above, refuses=self._refuses)


def _scaled(pattern: CSR, value: Tensor, sums: Tensor | None) -> SparseMatrix:
    """Return a matrix, with every row scaled to its sum in ``sums``, [R or more], unless None."""
    if sums is not None:
        sampled = row_sums(pattern, value)
        scale = torch.where(sampled > 0, sums[: len(sampled)] / sampled, 0)
        value = value * scale.index_select(0, pattern.row)
    return SparseMatrix.from_pattern(pattern, value)
