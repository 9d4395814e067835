"""`Inference`: a way to run models on every node of one graph; all nodes at once, and the members of an ensemble."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.nn.gnn import members_of
from gistgnn.sampling import Batch, forward

Output = tuple[slice | Tensor, Tensor]
"""Some nodes, as a range or by number, and their logits: [n, C]."""


class Inference(ABC):
    """A way to run models on one graph. Whatever depends on the graph alone is prepared once.

    A subclass defines `outputs`, `logits` or both.

    Attributes:
        nodes: the mask [N] of the nodes with an output; None: all nodes.
        parts: the number of each node's part, [N]; None: the graph is in one piece.
    """

    nodes: Tensor | None = None
    parts: Tensor | None = None

    def __init__(self, count: int) -> None:
        self._count = count  # N

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json: "method", "exact" and the method's own fields."""

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C], NaN for nodes without an output."""
        out: Tensor | None = None
        for nodes, piece in self.outputs(model):
            out = put(out, nodes, piece, self._count, torch.nan)
        assert out is not None
        return out

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the same output in pieces, which need not be in memory together."""
        yield slice(0, self._count), self.logits(model)


class WholeGraph(Inference):
    """Runs any model on the whole graph at once."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(len(batch.x))
        self._batch = batch.in_memory()

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json."""
        return {"method": "whole", "exact": True}

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C]."""
        return forward(model, self._batch)


class EnsembleAverage(Inference):
    """Runs the members of an ensemble one after another and averages their outputs.

    ``prepare`` is called once for every shape of members.
    """

    def __init__(self, members: Sequence[nn.Module], nodes: int, prepare: Callable[[nn.Module], Inference]) -> None:
        super().__init__(nodes)
        kinds = {_shapes(member): member for member in members}
        self._by_shapes = {shapes: prepare(member) for shapes, member in kinds.items()}
        self._first = next(iter(self._by_shapes.values()))
        self.nodes, self.parts = self._first.nodes, self._first.parts

    def describe(self) -> dict[str, Any]:
        """Return the members' method as in result.json."""
        return self._first.describe()

    def logits(self, model: nn.Module) -> Tensor:
        """Return the mean output of an ensemble's members, or the output of a single member: [N, C]."""
        members = members_of(model)
        outputs = (self._by_shapes[_shapes(member)].logits(member) for member in members)
        return reduce(torch.add, outputs) / len(members)


def put(
    into: Tensor | None, nodes: slice | Tensor, piece: Tensor, count: int, fill: float, dtype: torch.dtype | None = None
) -> Tensor:
    """Write the rows of some nodes into a tensor for ``count`` nodes, and return it; None: make it, all ``fill``.

    A piece with the rows of all nodes is returned itself.
    """
    if isinstance(nodes, slice) and nodes == slice(0, count):
        return piece
    if into is None:
        into = piece.new_full((count, *piece.shape[1:]), fill, dtype=dtype)
    into[nodes] = piece.to(into.dtype)
    return into


def _shapes(model: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(p.shape for p in model.parameters())
