"""How a model is run on a graph whose features may not fit in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.graphs.clusters import Note
from gistgnn.inference.available import available_bytes
from gistgnn.inference.layers import ByLayers
from gistgnn.inference.parts import ByParts
from gistgnn.inference.plan import Budget, plan_layers, whole_graph_bytes
from gistgnn.inference.whole import Whole
from gistgnn.nn.gnn import as_gnn
from gistgnn.sampling import Batch

METHODS = ("auto", "whole", "layers", "parts")


class Inference(Protocol):
    """A way to run models on one graph; what is constant about the graph is prepared once."""

    def describe(self) -> dict[str, Any]:
        """The method, as result.json holds it: "method", "exact" and what belongs to it."""

    def logits(self, model: nn.Module) -> Tensor:
        """The output for every node of a model in evaluation mode: [N, C]."""


@dataclass(frozen=True)
class Evaluation:
    """How models are run on the whole graph.

    Args:
        method: "whole": all at once; "layers": one layer after the other within `memory`, exact, for models of
            `gistgnn.nn`; "parts": one part of the graph after the other, without the edges between them, approximate;
            "auto": layers where the whole graph would take more than `memory`, of models of `gistgnn.nn`.
        memory: bytes that auto and layers may take, beside the graph and the model, on the host and likewise on the
            GPU of the model; None: half of what is available.
        parts: P, for the method parts.

    Raises:
        InputError: a value out of its range, or that does not go with the method.
    """

    method: str = "auto"
    memory: int | None = None
    parts: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        if self.method not in METHODS:
            raise InputError(f"evaluation is '{self.method}', expected one of {', '.join(METHODS)}")
        for name in ("memory", "parts"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InputError(f"{name} is {value!r}, expected an integer >= 1")
        if self.method == "parts" and self.parts is None:
            raise InputError("evaluation is by parts, but not how many: say so, such as 5000")
        if self.method != "parts" and self.parts is not None:
            raise InputError(f"parts is {self.parts}, but the evaluation is {self.method}: choose the method parts")
        if self.method in ("whole", "parts") and self.memory is not None:
            raise InputError(f"memory is given, but the evaluation is {self.method}: give it with auto or layers")

    @property
    def approximation(self) -> dict[str, Any] | None:
        """What of it changes the result; None where it is exact."""
        return {"parts": self.parts} if self.method == "parts" else None

    def prepare(self, model: nn.Module, batch: Batch, seed: int = 0, note: Note = lambda _: None) -> Inference:
        """Choose the method for a model on a graph, and prepare it.

        Args:
            model: of the sizes that will be run.
            batch: the graph, where the models will be.
            seed: of METIS.
            note: called with what the user should know.

        Raises:
            InputError: layers with another's module, too little memory or room on the disk, or METIS failed.
        """
        if self.parts is not None:
            return ByParts(batch, self.parts, seed, note)
        gnn = as_gnn(model)
        if gnn is None and self.method == "layers":
            raise InputError(
                f"the model is a {type(model).__name__}: evaluation by layers is for the models of gistgnn.nn; "
                "choose the method parts, or whole"
            )
        if gnn is None or self.method == "whole":
            return Whole(batch)
        gnn.check_input(batch.x)
        with torch.no_grad():
            budget = self._budget(batch.x.device)
            if self.method == "auto" and whole_graph_bytes(gnn, batch) <= budget.compute:
                return Whole(batch)
            return ByLayers(batch, plan_layers(gnn, batch, budget))

    def _budget(self, device: torch.device) -> Budget:
        places = [torch.device("cpu")] + [device] * (device.type != "cpu")
        return Budget(*(self.memory or available_bytes(place) // 2 for place in places))
