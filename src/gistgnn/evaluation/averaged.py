"""The output of an ensemble: its members run one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gistgnn.nn.ensemble_model import members_of

if TYPE_CHECKING:
    from gistgnn.evaluation.evaluation import Inference


class Averaged:
    """Runs every member as it would be run alone, and averages their outputs.

    Args:
        members: of the ensemble.
        prepare: prepares to run a member, and all others of its widths.
    """

    def __init__(self, members: Sequence[nn.Module], prepare: Callable[[nn.Module], Inference]) -> None:
        kinds = {_shapes(member): member for member in members}
        self._by_shapes = {shapes: prepare(member) for shapes, member in kinds.items()}
        self._first = next(iter(self._by_shapes.values()))

    @property
    def nodes(self) -> Tensor | None:
        """Which nodes have an output."""
        return self._first.nodes

    def describe(self) -> dict[str, Any]:
        """The members' method, as result.json holds it."""
        return self._first.describe()

    def logits(self, model: nn.Module) -> Tensor:
        """The mean output of the members of an ensemble, [N, C], or the output of one of them."""
        first, *others = members_of(model)
        total = self._by_shapes[_shapes(first)].logits(first)
        for member in others:
            total = total + self._by_shapes[_shapes(member)].logits(member)
        return total / (1 + len(others))


def _shapes(model: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(p.shape for p in model.parameters())
