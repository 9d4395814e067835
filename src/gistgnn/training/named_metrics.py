"""Metrics by scikit-learn, which is slow to import."""

from collections.abc import Callable
from typing import Any

from sklearn import metrics
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.training.metric import Metric, of_labels

Score = Callable[..., Any]


def _of_probabilities(name: str, score: Score, **options: Any) -> Metric:
    """A score of the classes' probabilities."""

    def compute(logits: Tensor, targets: Tensor) -> float:
        if targets.dim() == 2:
            return float(score(targets.long().cpu().numpy(), logits.sigmoid().cpu().numpy()))
        probabilities = logits.softmax(dim=1)
        if logits.shape[1] == 2:
            return float(score(targets.cpu().numpy(), probabilities[:, 1].cpu().numpy()))
        classes = range(logits.shape[1])
        return float(score(targets.cpu().numpy(), probabilities.cpu().numpy(), labels=classes, **options))

    return Metric(compute, name, percent=True)


def _of_numbers(name: str, score: Score, *, higher_is_better: bool) -> Metric:
    """A score of regression."""

    def compute(logits: Tensor, targets: Tensor) -> float:
        if not targets.is_floating_point():
            raise InputError(f"the metric is {name}, but the targets are classes: use accuracy, or a function")
        return float(score(targets.cpu().numpy(), logits.cpu().numpy()))

    return Metric(compute, name, higher_is_better)


def _average_precision(truth: Any, scores: Any, labels: Any = None) -> float:
    """The mean of the classes' average precisions, each class against the rest."""
    if truth.ndim == 1 and labels is not None:
        truth = truth[:, None] == [list(labels)]
    return float(metrics.average_precision_score(truth, scores))


BALANCED_ACCURACY = of_labels(
    "balanced_accuracy", lambda truth, guess: metrics.balanced_accuracy_score(truth.cpu(), guess.cpu())
)
ROC_AUC = _of_probabilities("roc_auc", metrics.roc_auc_score, multi_class="ovr")
AVERAGE_PRECISION = _of_probabilities("average_precision", _average_precision)
R2 = _of_numbers("r2", metrics.r2_score, higher_is_better=True)
MAE = _of_numbers("mae", metrics.mean_absolute_error, higher_is_better=False)
RMSE = _of_numbers("rmse", metrics.root_mean_squared_error, higher_is_better=False)
