"""The output of any module on the whole graph at once."""

from typing import Any

from torch import Tensor, nn

from gistgnn.sampling import Batch, forward


class Whole:
    """Holds the features of all nodes in memory.

    Args:
        batch: the graph.

    Attributes:
        nodes: None: all nodes have an output.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.nodes = None

    def describe(self) -> dict[str, Any]:
        """The method, as result.json holds it."""
        return {"method": "whole", "exact": True}

    def logits(self, model: nn.Module) -> Tensor:
        """The output for every node of a model in evaluation mode: [N, C]."""
        return forward(model, self._batch)
