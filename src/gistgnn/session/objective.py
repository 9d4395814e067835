"""The loss and the metric of a run, made from its settings and its graph."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from gistgnn.evaluation.scores import selection_metric
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.phases import Phase
from gistgnn.sampling import Batch
from gistgnn.settings import Training
from gistgnn.training.loss import Criterion, make_criterion
from gistgnn.training.metric import NAMED, Metric, as_metric

if TYPE_CHECKING:
    from torch_geometric.data import Data

log = logging.getLogger(__name__)


def as_graph(graph: Graph | Data, training: Training) -> Graph:
    """Return the graph to train on.

    A PyG `Data` is one of a regression if its y are floating-point numbers that are not labels, and the loss is "mse",
    "l1", "huber" or a function.
    """
    if isinstance(graph, Graph):
        return graph
    return Graph.from_pyg(graph, regression=_predicts_numbers(graph, training))


def with_criterion(training: Training, graph: Graph) -> Training:
    """Return the settings with the loss as the runners need it, a `Criterion`, or None for the plain cross-entropy."""
    criterion = make_criterion(
        training.loss,
        graph.y[graph.train],
        graph.num_classes,
        class_weights=training.class_weights,
        label_smoothing=training.label_smoothing,
        regression=graph.regression,
    )
    return replace(training, loss=criterion, class_weights=None, label_smoothing=0.0)


def for_task(training: Training, graph: Graph, trainer: GlobalModel) -> Training:
    """Return the settings that the graph's task needs: in a regression Θ is the mean of its sub-GCNs.

    In the paper's method the full model's output is the sum of m outputs, each of which has learned the target. The
    largest class stays the largest; a number becomes m times as large. One phase makes Θ the mean.
    """
    sums = trainer.method == "gist" and trainer.workers > 1 and bool(trainer.partition.split)
    if not graph.regression or not sums or training.averages or training.budget:
        return training
    log.info("the targets are numbers, so the full model is the mean of its sub-GCNs, not their sum")
    return replace(training, phases=(Phase(trainer.workers, training.epochs),))


def metric_of(training: Training, graph: Graph) -> Metric:
    """Return the score that selects the best model."""
    return NAMED[selection_metric(graph)] if training.metric is None else as_metric(training.metric)


def any_outputs(training: Training) -> bool:
    """Whether the model may have any number of outputs: loss and metric are the user's own."""
    return callable(training.loss) and callable(training.metric)


def try_objective(training: Training, metric: Metric, graph: Graph, first: Batch) -> None:
    """Try the loss and the metric on random outputs, before anything is trained."""
    if isinstance(training.loss, Criterion) and first.loss_nodes.numel():
        training.loss.check(graph.num_classes, first.y[first.loss_nodes], first.loss_weights)
    if training.metric is not None:
        for mask in (graph.val, graph.test):
            rng = torch.Generator().manual_seed(0)
            logits = torch.randn(int(mask.sum()), graph.num_classes, generator=rng).to(graph.y.device)
            metric(logits, graph.y[mask])


def _predicts_numbers(data: Any, training: Training) -> bool:
    y = getattr(data, "y", None)
    if not isinstance(y, torch.Tensor) or not y.is_floating_point():
        return False
    if training.loss in ("mse", "l1", "huber"):
        return True
    return callable(training.loss) and not bool(((y == 0) | (y == 1)).all())
