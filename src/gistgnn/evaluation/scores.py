"""Predictions of a model, and its scores on the splits of a graph."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.evaluation.evaluation import Evaluation, Inference
from gistgnn.graphs import Graph
from gistgnn.sampling import Batch, whole_graph

SPLITS = {"train": "train", "validation": "val", "test": "test"}  # name in results: attribute of a Graph


@dataclass(frozen=True)
class Scores:
    """Scores on one split, as fractions in [0, 1]."""

    accuracy: float  # share of nodes with the right label; in multi-label graphs, with all labels right
    f1_micro: float  # F1 over all decisions; equal to the accuracy if every node has one label
    f1_macro: float  # mean of the classes' F1

    def as_dict(self) -> dict[str, float]:
        """Return the scores by name."""
        return asdict(self)


def selection_metric(graph: Graph) -> str:
    """Return the name of the validation score that selects the best model."""
    return "f1_micro" if graph.multi_label else "accuracy"


def predicted_labels(logits: Tensor, multi_label: bool) -> Tensor:
    """Return predicted classes [N], or for a multi-label graph predicted labels [N, K] of 0 and 1."""
    return (logits > 0).long() if multi_label else logits.argmax(dim=1)


def score_labels(predicted: Tensor, y: Tensor) -> Scores:
    """Score predictions against labels, both [N] classes or both [N, K] of 0 and 1.

    The mean of the classes' F1 is over the classes that `predicted` or `y` has; of multi-label graphs, over all K, and
    a label without any positive counts as 0.
    """
    y = y.long()
    right = predicted == y
    if y.dim() == 2:
        accuracy = right.all(dim=1)
        hits, guessed, true = (labels.sum(dim=0) for labels in (predicted * y, predicted, y))
    else:
        accuracy, classes = right, int(torch.maximum(predicted.max(), y.max())) + 1
        hits, guessed, true = (torch.bincount(labels, minlength=classes) for labels in (y[right], predicted, y))
        there = guessed + true > 0
        hits, guessed, true = hits[there], guessed[there], true[there]
    f1 = 2 * hits.double() / (guessed + true).clamp(min=1)
    micro = 2 * float(hits.sum()) / max(1.0, float((guessed + true).sum()))
    return Scores(float(accuracy.double().mean()), micro, float(f1.mean()))


def predict(model: nn.Module, batch: Batch, evaluation: Evaluation | Inference | None = None) -> Tensor:
    """Return the logits of every node of the batch, [N, C], without dropout.

    Args:
        model: on the batch's device.
        batch: the graph.
        evaluation: how the model runs (None: `Evaluation()`), or the result of `Evaluation.prepare` for this batch.

    Raises:
        InputError: as `Evaluation.prepare`, or the evaluation runs only a sample of the parts.
    """
    with _prepared(model, batch, evaluation) as inference:
        if inference.nodes is not None:
            raise InputError("sample is set, so most nodes have no output: leave out the sample to predict every node")
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
        graph: the graph.
        splits: of "train", "validation" and "test".
        batch: the graph as a batch; None: prepare it.
        evaluation: as for `predict`. If it runs a sample of the parts, only nodes in the sample are scored.

    Raises:
        InputError: as `Evaluation.prepare`, or a split has no node in the sample.
    """
    with _prepared(model, batch or whole_graph(graph), evaluation) as inference:
        return score(inference.logits(model), graph, splits, inference.nodes)


def score(logits: Tensor, graph: Graph, splits: Sequence[str], sampled: Tensor | None = None) -> dict[str, Scores]:
    """Return the scores of a model's output ``logits``: [N, C] on the splits of a graph.

    ``sampled`` is the mask [N] of the nodes with an output; None: all nodes.

    Raises:
        InputError: no node of a split has an output.
    """
    predicted = predicted_labels(logits, graph.multi_label)
    results = {}
    for split in splits:
        mask: Tensor = getattr(graph, SPLITS[split])
        if sampled is not None and not (mask := mask & sampled).any():
            raise InputError(f"no {split} node is in the sample of the parts: raise the sample, or leave it out")
        results[split] = score_labels(predicted[mask], graph.y[mask])
    return results


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode and record no gradients inside the block."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@contextmanager
def _prepared(model: nn.Module, batch: Batch, evaluation: Evaluation | Inference | None) -> Iterator[Inference]:
    with evaluation_mode(model):
        if evaluation is None or isinstance(evaluation, Evaluation):
            evaluation = (evaluation or Evaluation()).prepare(model, batch)
        yield evaluation
