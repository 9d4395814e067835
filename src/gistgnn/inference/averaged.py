"""The output of an ensemble: its members run one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from gistgnn.nn.ensemble import members_of

if TYPE_CHECKING:
    from gistgnn.inference.evaluation import Inference


class Averaged:
    """Runs the members as one of them would be run alone, and averages their outputs.

    Args:
        inference: prepared for the widest of them; it runs the others too.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    @property
    def nodes(self) -> Tensor | None:
        """Which nodes have an output."""
        return self._inference.nodes

    def describe(self) -> dict[str, Any]:
        """The members' method, as result.json holds it."""
        return self._inference.describe()

    def logits(self, model: nn.Module) -> Tensor:
        """The mean output of a model's members: [N, C]; of another model than an ensemble, its own."""
        first, *others = members_of(model)
        total = self._inference.logits(first)
        for member in others:
            total = total + self._inference.logits(member)
        return total / (1 + len(others))
