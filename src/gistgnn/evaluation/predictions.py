"""`Inference`, a way to run models on one graph; `Predictions`: what of their output scores are computed from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.graphs import Graph
from gistgnn.training.metric import NAMED, Metric, predicted_labels

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
            if out is None:
                out = piece.new_full((self._count, piece.shape[1]), torch.nan)
            out[nodes] = piece
        assert out is not None
        return out

    def outputs(self, model: nn.Module) -> Iterator[Output]:
        """Yield the same output in pieces, which need not be in memory together."""
        yield slice(0, self._count), self.logits(model)


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's predictions for the nodes of a graph."""

    labels: Tensor | None  # classes [N] or labels [N, K]; None: the outputs are no scores of the graph's classes
    logits: Tensor | None  # [N, C], where a metric reads them; else None

    @classmethod
    def of(cls, outputs: Iterable[Output], graph: Graph, metric: Metric | None = None) -> Predictions:
        """Collect a model's output for all nodes. Nodes that are in no piece have NaN as logits, and class 0.

        ``metric`` is a further score than those of the graph's task.
        """
        labels = logits = None
        for nodes, piece in outputs:
            reads_labels = piece.shape[1] == graph.num_classes and not graph.regression
            reads_logits = not reads_labels or reads_further(graph, metric)
            guess = predicted_labels(piece, graph.multi_label) if reads_labels else None
            if isinstance(nodes, slice) and nodes == slice(0, graph.num_nodes):
                return cls(guess, piece if reads_logits else None)
            if guess is not None:
                if labels is None:
                    labels = torch.zeros(graph.num_nodes, *guess.shape[1:], dtype=_narrow(graph), device=guess.device)
                labels[nodes] = guess.to(labels.dtype)
            if reads_logits:
                if logits is None:
                    logits = piece.new_full((graph.num_nodes, piece.shape[1]), torch.nan)
                logits[nodes] = piece
        return cls(labels, logits)


def reads_further(graph: Graph, metric: Metric | None) -> bool:
    """Whether a metric is given that is not among those of the graph's task, which need the labels alone."""
    return metric is not None and metric not in [NAMED[name] for name in shown_metrics(graph)]


def shown_metrics(graph: Graph) -> tuple[str, ...]:
    """Return the names of the scores of a graph's task."""
    return ("r2", "mae", "rmse") if graph.regression else ("accuracy", "f1_micro", "f1_macro")


def _narrow(graph: Graph) -> torch.dtype:
    """Return the smallest type that holds the labels: there is one for every node of a graph."""
    if graph.multi_label:
        return torch.bool
    return torch.int16 if graph.num_classes <= 2**15 else torch.int32
