"""`Evaluation`: the user's choice of how models run on a whole graph."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.budget import Budget, plan_layers, whole_graph_bytes
from gistgnn.evaluation.by_layers import ByLayers, required_nodes
from gistgnn.evaluation.inference import ByParts, EnsembleAverage, Inference, WholeGraph, nodes_at_once
from gistgnn.nn.gnn import EnsembleModel, as_gnn, members_of
from gistgnn.sampling import Batch
from gistgnn.utils.checks import MOST, check_count, shown
from gistgnn.utils.process_memory import available_bytes

METHODS = ("auto", "whole", "layers", "parts")


@dataclass(frozen=True)
class Evaluation:
    """How to run models on the whole graph.

    Example:
        >>> Evaluation("parts", parts=5000).prepare(model, batch).logits(model)

    Args:
        method: "whole": all nodes at once. "layers": one layer after the other within ``memory``; exact; only for
            models of `gistgnn.nn`. "parts": one part of the graph after the other, without the edges between parts;
            approximate. "auto": "layers" for a model of `gistgnn.nn` that needs more than ``memory``, else "whole".
        memory: bytes that auto, layers and parts may use beside the graph and the model, on the host and on the
            model's GPU; None: half of what is available. A single part may exceed it.
        parts: number of parts P, for the method "parts".
        sample: score only the nodes of K parts, drawn with the seed; None: score all nodes.

    Raises:
        InputError: a value is out of range or does not suit the method.
    """

    method: str = "auto"
    memory: int | None = None
    parts: int | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"evaluation is {shown(self.method)}, expected one of {', '.join(METHODS)}")
        for name, most in (("memory", 2**62), ("parts", MOST), ("sample", MOST)):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, most=most)
        if self.method == "parts" and self.parts is None:
            raise InputError("evaluation is by parts, but parts is not given: set the number of parts, such as 5000")
        if self.method != "parts" and self.parts is not None:
            raise InputError(f"parts is {self.parts}, but the evaluation is {self.method}: choose the method parts")
        if self.method == "whole" and self.memory is not None:
            raise InputError("memory is given, but the evaluation is whole: give it with auto, layers or parts")
        if self.sample is not None and (self.parts is None or self.sample > self.parts):
            limit = f"expected at most parts, which is {self.parts}"
            raise InputError(f"sample is {self.sample}, {limit}: choose the method parts and set parts")

    @property
    def approximation(self) -> dict[str, Any] | None:
        """The settings that change the result; None: the result is exact."""
        if self.method != "parts":
            return None
        return {"parts": self.parts} if self.sample is None else {"parts": self.parts, "sample": self.sample}

    @torch.no_grad()
    def prepare(self, model: nn.Module, batch: Batch, seed: int = 0, wanted: Tensor | None = None) -> Inference:
        """Choose the method for models of the same shapes on a graph, and prepare it.

        The graph is on the models' device. The seed is of METIS and of the sample. ``wanted`` is a mask [N] of the
        nodes whose output is wanted; the others may have none. None: all.

        Raises:
            InputError: "layers" with a model from outside `gistgnn.nn`, too little memory or disk space, METIS failed,
                or the sample has no node to be scored.
        """
        if isinstance(model, EnsembleModel):
            members = members_of(model)
            return EnsembleAverage(members, len(batch.x), lambda member: self.prepare(member, batch, seed, wanted))
        gnn = as_gnn(model)
        if gnn is not None:
            gnn.check_input(batch.x)
        if self.parts is not None:
            at_once = nodes_at_once(model, batch, self._budget(batch.device))
            return ByParts(batch, self.parts, seed, self.sample, at_once)
        if gnn is None and self.method == "layers":
            raise InputError(
                f"the model is a {type(model).__name__}: evaluation by layers is for the models of gistgnn.nn; "
                "choose the method parts, or whole"
            )
        if gnn is None or self.method == "whole":
            return WholeGraph(batch)
        budget = self._budget(batch.device)
        if self.method == "auto" and not batch.is_stored and whole_graph_bytes(gnn, batch) <= budget.compute:
            return WholeGraph(batch)
        return ByLayers(batch, plan_layers(gnn, batch, budget), required_nodes(gnn, batch.adj, wanted))

    def _budget(self, device: torch.device) -> Budget:
        devices = [torch.device("cpu")] + [device] * (device.type != "cpu")
        return Budget(*(self.memory or available_bytes(place) // 2 for place in devices))
