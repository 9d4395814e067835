"""`Inference`, a way to run models on one graph, and its two simplest forms: at once, and for an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gistgnn.nn.ensemble_model import members_of
from gistgnn.sampling import Batch, forward


class Inference(Protocol):
    """A way to run models on one graph. Whatever depends on the graph alone is prepared once."""

    @property
    def nodes(self) -> Tensor | None:
        """The mask [N] of the nodes with an output; None: all nodes."""

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json: "method", "exact" and the method's own fields."""

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C], NaN for nodes without an output."""


class WholeGraph:
    """Runs any model on the whole graph at once.

    Args:
        batch: the graph.
    """

    nodes = None

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def describe(self) -> dict[str, Any]:
        """Return the method as in result.json."""
        return {"method": "whole", "exact": True}

    def logits(self, model: nn.Module) -> Tensor:
        """Return the output of a model in evaluation mode: [N, C]."""
        return forward(model, self._batch)


class EnsembleAverage:
    """Runs the members of an ensemble one after another and averages their outputs.

    Args:
        members: the ensemble's members.
        prepare: prepares the inference of a member, which serves all members of the same shapes.
    """

    def __init__(self, members: Sequence[nn.Module], prepare: Callable[[nn.Module], Inference]) -> None:
        kinds = {_shapes(member): member for member in members}
        self._by_shapes = {shapes: prepare(member) for shapes, member in kinds.items()}
        self._first = next(iter(self._by_shapes.values()))

    @property
    def nodes(self) -> Tensor | None:
        """The mask [N] of the nodes with an output; None: all nodes."""
        return self._first.nodes

    def describe(self) -> dict[str, Any]:
        """Return the members' method as in result.json."""
        return self._first.describe()

    def logits(self, model: nn.Module) -> Tensor:
        """Return the mean output of an ensemble's members, or the output of a single member: [N, C]."""
        first, *others = members_of(model)
        total = self._by_shapes[_shapes(first)].logits(first)
        for member in others:
            total = total + self._by_shapes[_shapes(member)].logits(member)
        return total / (1 + len(others))


def _shapes(model: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(p.shape for p in model.parameters())
