"""How a model is run on a graph whose features may not fit in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.averaged import Averaged
from gistgnn.evaluation.budget import Budget, plan_layers, whole_graph_bytes
from gistgnn.evaluation.layers import ByLayers
from gistgnn.evaluation.parts import ByParts, nodes_at_once
from gistgnn.evaluation.whole import Whole
from gistgnn.nn.ensemble_model import EnsembleModel, members_of
from gistgnn.nn.gnn import as_gnn
from gistgnn.sampling import Batch
from gistgnn.utils.available import available_bytes

METHODS = ("auto", "whole", "layers", "parts")


class Inference(Protocol):
    """A way to run models on one graph; what is constant about the graph is prepared once."""

    @property
    def nodes(self) -> Tensor | None:
        """Which nodes have an output, a mask [N]; None: all."""

    def describe(self) -> dict[str, Any]:
        """The method, as result.json holds it: "method", "exact" and what belongs to it."""

    def logits(self, model: nn.Module) -> Tensor:
        """The output of a model in evaluation mode: [N, C], not a number for nodes that have none."""


@dataclass(frozen=True)
class Evaluation:
    """How models are run on the whole graph.

    Args:
        method: "whole": all at once; "layers": one layer after the other within `memory`, exact, for models of
            `gistgnn.nn`; "parts": some parts of the graph after the others, without the edges between parts,
            approximate; "auto": layers where the whole graph would take more than `memory`, of models of `gistgnn.nn`.
        memory: bytes that auto, layers and parts may take, beside the graph and the model, on the host and likewise
            on the GPU of the model; None: half of what is available. One part is run whatever it takes.
        parts: P, for the method parts.
        sample: K; scores are over the nodes of K of the parts alone, which follow from the seed; None: over all.

    Raises:
        InputError: a value out of its range, or that does not go with the method.
    """

    method: str = "auto"
    memory: int | None = None
    parts: int | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        if self.method not in METHODS:
            raise InputError(f"evaluation is '{self.method}', expected one of {', '.join(METHODS)}")
        for name in ("memory", "parts", "sample"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InputError(f"{name} is {value!r}, expected an integer >= 1")
        if self.method == "parts" and self.parts is None:
            raise InputError("evaluation is by parts, but not how many: say so, such as 5000")
        if self.method != "parts" and self.parts is not None:
            raise InputError(f"parts is {self.parts}, but the evaluation is {self.method}: choose the method parts")
        if self.method == "whole" and self.memory is not None:
            raise InputError("memory is given, but the evaluation is whole: give it with auto, layers or parts")
        if self.sample is not None and (self.parts is None or self.sample > self.parts):
            raise InputError(
                f"sample is {self.sample}, expected at most parts, which is {self.parts}: choose the method parts, and "
                "how many"
            )

    @property
    def approximation(self) -> dict[str, Any] | None:
        """What of it changes the result; None where it is exact."""
        if self.method != "parts":
            return None
        return {"parts": self.parts} if self.sample is None else {"parts": self.parts, "sample": self.sample}

    def prepare(self, model: nn.Module, batch: Batch, seed: int = 0) -> Inference:
        """Choose the method for a model on a graph, and prepare it.

        Args:
            model: of the sizes that will be run.
            batch: the graph, where the models will be.
            seed: of METIS and of the sample.

        Raises:
            InputError: layers with another's module, too little memory or room on the disk, METIS failed, or no node
                that could be scored is in the sample.
        """
        if isinstance(model, EnsembleModel):
            return Averaged(members_of(model), lambda member: self.prepare(member, batch, seed))
        gnn = as_gnn(model)
        if gnn is not None:
            gnn.check_input(batch.x)
        if self.parts is not None:
            with torch.no_grad():
                at_once = nodes_at_once(model, batch, self._budget(batch.x.device))
            return ByParts(batch, self.parts, seed, self.sample, at_once)
        if gnn is None and self.method == "layers":
            raise InputError(
                f"the model is a {type(model).__name__}: evaluation by layers is for the models of gistgnn.nn; "
                "choose the method parts, or whole"
            )
        if gnn is None or self.method == "whole":
            return Whole(batch)
        with torch.no_grad():
            budget = self._budget(batch.x.device)
            if self.method == "auto" and whole_graph_bytes(gnn, batch) <= budget.compute:
                return Whole(batch)
            return ByLayers(batch, plan_layers(gnn, batch, budget))

    def _budget(self, device: torch.device) -> Budget:
        places = [torch.device("cpu")] + [device] * (device.type != "cpu")
        return Budget(*(self.memory or available_bytes(place) // 2 for place in places))
