"""Scores of a model on the splits of a graph."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation, Inference
from gistgnn.graphs import Graph
from gistgnn.sampling import Batch, whole_graph

SPLITS = {"train": "train", "validation": "val", "test": "test"}  # the split's name in results: in a Graph


@dataclass(frozen=True)
class Scores:
    """Scores on one split, as fractions in [0, 1].

    Args:
        accuracy: share of nodes whose label is right; for multi-label graphs, whose labels are all right.
        f1_micro: F1 over all decisions together; equal to the accuracy where every node has one label.
        f1_macro: mean of the classes' F1.
    """

    accuracy: float
    f1_micro: float
    f1_macro: float

    def as_dict(self) -> dict[str, float]:
        """Return the scores by name."""
        return asdict(self)


def chosen(graph: Graph) -> str:
    """Which validation score says which model is best."""
    return "f1_micro" if graph.multi_label else "accuracy"


def decide(logits: Tensor, multi_label: bool) -> Tensor:
    """Return predicted classes [N], or predicted labels [N, K] of 0 and 1 for a multi-label graph."""
    return (logits > 0).long() if multi_label else logits.argmax(dim=1)


def scores(predicted: Tensor, y: Tensor) -> Scores:
    """Compare predictions with labels, both [N] classes or both [N, K] of 0 and 1."""
    truth, guess = y.long().cpu().numpy(), predicted.cpu().numpy()
    return Scores(
        accuracy=float(accuracy_score(truth, guess)),
        f1_micro=float(f1_score(truth, guess, average="micro", zero_division=0)),
        f1_macro=float(f1_score(truth, guess, average="macro", zero_division=0)),
    )


def predict(model: nn.Module, batch: Batch, evaluation: Evaluation | Inference | None = None) -> Tensor:
    """Return the logits of every node of the batch, [N, C], with dropout off.

    Args:
        model: on the batch's device.
        batch: the graph.
        evaluation: how the model is run (None: `Evaluation()`), or what `Evaluation.prepare` returned for this batch.

    Raises:
        InputError: see `Evaluation.prepare`; or the evaluation is of a sample of the parts.
    """
    with _prepared(model, batch, evaluation) as inference:
        if inference.nodes is not None:
            raise InputError("the evaluation is of a sample of the parts, and most nodes have no output: leave it out")
        return inference.logits(model)


def evaluate(
    model: nn.Module,
    graph: Graph,
    splits: Sequence[str] = tuple(SPLITS),
    batch: Batch | None = None,
    evaluation: Evaluation | Inference | None = None,
) -> dict[str, Scores]:
    """Return a model's scores on the splits of a graph.

    Args:
        model: on the graph's device.
        graph: the graph and its splits.
        splits: of "train", "validation" and "test".
        batch: the graph as a batch, where the caller has it prepared.
        evaluation: see `predict`; of a sample of the parts, scores are over the nodes in it.

    Raises:
        InputError: see `Evaluation.prepare`; or a split has no node in the sample.
    """
    with _prepared(model, batch or whole_graph(graph), evaluation) as inference:
        return score(inference.logits(model), graph, splits, inference.nodes)


def score(logits: Tensor, graph: Graph, splits: Sequence[str], sampled: Tensor | None = None) -> dict[str, Scores]:
    """Return the scores of a model's output for every node, [N, C], on the splits of a graph.

    Args:
        logits: the output.
        graph: the labels and splits.
        splits: of "train", "validation" and "test".
        sampled: which nodes have an output, a mask [N]; None: all.

    Raises:
        InputError: a split has no node that has one.
    """
    predicted = decide(logits, graph.multi_label)
    masks = {split: _scored(graph, split, sampled) for split in splits}
    return {split: scores(predicted[mask], graph.y[mask]) for split, mask in masks.items()}


def _scored(graph: Graph, split: str, sampled: Tensor | None) -> Tensor:
    """Which nodes of a split are scored: a mask [N]."""
    mask: Tensor = getattr(graph, SPLITS[split])
    if sampled is None:
        return mask
    if not (mask & sampled).any():
        raise InputError(f"no {split} node is in the sample of the parts: raise the sample, or leave it out")
    return mask & sampled


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within the block the model is in evaluation mode, and no gradient is recorded."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@contextmanager
def _prepared(model: nn.Module, batch: Batch, evaluation: Evaluation | Inference | None) -> Iterator[Inference]:
    with evaluating(model):
        if evaluation is None or isinstance(evaluation, Evaluation):
            evaluation = (evaluation or Evaluation()).prepare(model, batch)
        yield evaluation
