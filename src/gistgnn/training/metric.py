"""The score that selects the best model: by name, a function, or a metric of torchmetrics."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, users_code
from gistgnn.training.names import (
    CLASS_METRICS,
    METRICS,
    adds_up,
    check_choice,
    find_named,
    named_as,
)
from gistgnn.utils.checks import check_name, shown

# A record has at most so many classes that a class is mistaken for.
_MOST_ERRORS = 5


@dataclass(frozen=True)
class Metric:
    """A score of a model's output, which selects the best model.

    Example:
        >>> fit(graph, epochs=100, metric=Metric(my_error, higher_is_better=False))

    Args:
        function: called as `function(logits, targets)` with the output [n, C] of a split's nodes
            and their targets. It returns one number. Or an object with `update`, `compute` and
            `reset`, such as a metric of torchmetrics.
        name: what history and reports call it. Defaults to the function's own name.
        higher_is_better: False for an error. Defaults to what the function's own attribute
            `higher_is_better` says, or True without one.
        percent: the score is a share from 0 to 1, which reports show in per cent.
    """

    function: Callable[[Tensor, Tensor], Any]
    name: str = ""
    higher_is_better: bool | None = None
    percent: bool = False

    def __post_init__(self) -> None:
        if not (callable(self.function) or adds_up(self.function)):
            raise InputError(
                f"metric is {shown(self.function)}, expected a function of (logits, targets)"
            )
        if not self.name:
            object.__setattr__(self, "name", named_as(self.function))
        check_name("name of the metric", self.name)
        if self.higher_is_better is None:
            declared = getattr(self.function, "higher_is_better", None)
            object.__setattr__(self, "higher_is_better", declared is not False)

    def __call__(self, logits: Tensor, targets: Tensor) -> float:
        """Return the score.

        Raises InputError if the function fails, or does not return a finite number.
        """
        metric: Any = self.function
        sizes = f"logits {list(logits.shape)} and targets {list(targets.shape)}"
        with users_code(f"the metric {self.name} fails for {sizes}"):
            if not adds_up(metric):
                return self.number(metric(logits, targets))
            metric = metric.to(logits.device) if isinstance(metric, nn.Module) else metric
            metric.reset()
            metric.update(logits, targets)
            return self.number(metric.compute())

    def number(self, returned: Any) -> float:
        """Return what the function has returned as a number.

        Raises InputError if it is none, or not finite.
        """
        value = self.any_number(returned)
        if not math.isfinite(value):
            raise InputError(f"the metric {self.name} is {value}: return a finite number")
        return value

    def any_number(self, returned: Any) -> float:
        """Return what the function has returned as a number, which may be infinite or NaN.

        Raises InputError if it is none.
        """
        with users_code(
            f"the metric {self.name} returned a {type(returned).__name__}", "return one number"
        ):
            return float(returned)

    def better(self, score: float | None, best: float | None) -> bool:
        """Whether a score is better than the best one so far.

        None stands for no score, and any score is better than none.
        """
        if score is None or best is None:
            return score is not None
        return score > best if self.higher_is_better else score < best


def as_metric(metric: "Metric | Callable[[Tensor, Tensor], Any] | str") -> Metric:
    """Return the metric that a user has given.

    It is given by name, as `package.module:function`, as a function or as a `Metric`.
    """
    check_choice("metric", metric)
    resolved = find_named("metric", metric)
    if isinstance(resolved, str):
        return NAMED[resolved]
    if isinstance(resolved, Metric):
        return resolved
    return Metric(resolved, name=metric if isinstance(metric, str) else "")


def has_output(logits: Tensor) -> Tensor:
    """Return the mask [N] of the nodes whose outputs, [N, C], are all finite.

    Other nodes have no prediction.
    """
    # A sum is finite only if all its terms are; a mask of all outputs would be as large as a
    # quarter of them.
    finite = logits.sum(dim=1).isfinite()
    if not bool(finite.all()):  # A sum of finite numbers may overflow.
        rows = ~finite
        finite[rows] = logits[rows].isfinite().all(dim=1)
    return finite


def predicted_labels(logits: Tensor, multi_label: bool) -> Tensor:
    """Return predicted classes [N], or for a multi-label graph predicted labels [N, K] of 0 and 1.

    A node with an output that is not finite has no prediction: -1, in all columns.
    """
    labels = (logits > 0).long() if multi_label else logits.argmax(dim=1)
    finite = has_output(logits)
    if not bool(finite.all()):
        labels[~finite] = -1
    return labels


def scores_of_classes(truth: Tensor, guess: Tensor, classes: int) -> list[dict[str, Any]]:
    """Return the number of nodes, the F1 and the errors of every class.

    `truth` and `guess` are the true and predicted classes [N]. The errors are the class's nodes by
    the class that was predicted instead, the most frequent five; "-1": none was.
    """
    counted = (truth[guess == truth], truth, guess[guess >= 0])
    hits, nodes, guessed = (torch.bincount(labels, minlength=classes) for labels in counted)
    f1 = 2 * hits.double() / (nodes + guessed).clamp(min=1)
    missed: list[dict[str, int]] = [{} for _ in range(classes)]
    pairs = torch.stack([truth, guess], dim=1)[guess != truth]
    errors, counts = pairs.unique(dim=0, return_counts=True)
    for number in counts.argsort(descending=True, stable=True).tolist():
        true_class, predicted = errors[number].tolist()
        if len(missed[true_class]) < _MOST_ERRORS:
            missed[true_class][str(predicted)] = int(counts[number])
    return [
        {"nodes": count, "f1": score, "missed": errors_of_class}
        for count, score, errors_of_class in zip(nodes.tolist(), f1.tolist(), missed, strict=True)
    ]


def label_scores(truth: Tensor, guess: Tensor) -> dict[str, float]:
    """Return accuracy, micro F1 and macro F1 of true and predicted classes [N] or labels [N, K].

    With several labels, a node is right if all its labels are. The macro F1 is the mean over the
    classes that are true or predicted; with several labels over all of them, where an absent one
    counts 0. A node without a prediction, -1, is wrong: none of its labels is predicted, and as a
    single class its -1 is one more that is wrong.
    """
    truth = truth.long()
    right = guess == truth
    without_prediction = 0
    if truth.dim() == 2:
        right = right.all(dim=1)
        guess = guess.clamp(min=0)
        hits = (truth * guess).sum(dim=0)
        occurrences = (truth + guess).sum(dim=0)
        counted = torch.ones_like(occurrences, dtype=torch.bool)
    else:
        classes = int(torch.maximum(truth.max(), guess.max())) + 1
        hits = torch.bincount(truth[right], minlength=classes)
        guess = guess[guess >= 0]
        occurrences = torch.bincount(truth, minlength=classes) + torch.bincount(
            guess, minlength=classes
        )
        counted = occurrences > 0
        without_prediction = len(truth) - len(guess)
    # `occurrences` counts how often a class is true, and how often it is predicted.
    twice_hits = 2 * hits.double()
    occurrences = occurrences.double()
    f1_micro = twice_hits.sum() / (occurrences.sum() + without_prediction).clamp(min=1)
    f1_of_classes = twice_hits[counted] / occurrences[counted].clamp(min=1)
    return {
        "accuracy": float(right.double().mean()),
        "f1_micro": float(f1_micro),
        "f1_macro": float(f1_of_classes.mean()),
    }


_SKLEARN = {
    "balanced_accuracy": "balanced_accuracy_score",
    "roc_auc": "roc_auc_score",
    "average_precision": "average_precision_score",
    "r2": "r2_score",
    "mae": "mean_absolute_error",
    "rmse": "root_mean_squared_error",
}


OF_PREDICTIONS = ("accuracy", "f1_micro", "f1_macro", "balanced_accuracy")
"""Metrics that read the predicted classes or labels alone: for them a node without a prediction is
wrong.
"""


def _score(name: str, logits: Tensor, targets: Tensor) -> float:
    if name not in _SKLEARN:
        return label_scores(targets, predicted_labels(logits, targets.dim() == 2))[name]
    from sklearn import metrics  # This is slow to import.
    from sklearn.exceptions import UndefinedMetricWarning

    with warnings.catch_warnings():  # What is undefined is NaN, which `Metric` refuses.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        # The balanced accuracy is the mean over the true classes. Another prediction is but wrong.
        warnings.filterwarnings("ignore", "y_pred contains classes not in y_true")
        return _score_by_sklearn(name, getattr(metrics, _SKLEARN[name]), logits, targets)


def _score_by_sklearn(
    name: str, score: Callable[..., Any], logits: Tensor, targets: Tensor
) -> float:
    if name not in CLASS_METRICS:
        if not targets.is_floating_point():
            raise InputError(
                f"the metric is {name}, but the targets are classes: use accuracy, or a function"
            )
        return float(score(targets.cpu().numpy(), logits.cpu().numpy()))
    truth = targets.long().cpu().numpy()
    several = targets.dim() == 2
    classes = logits.shape[1]
    if name == "balanced_accuracy":
        return float(score(truth, predicted_labels(logits, several).cpu()))
    chances = (logits.sigmoid() if several else logits.softmax(dim=1)).cpu().numpy()
    if not several and classes == 2:
        chances = chances[:, 1]
    elif not several and name == "roc_auc":
        return float(score(truth, chances, labels=range(classes), multi_class="ovr"))
    elif not several:  # Each class against the others.
        truth = truth[:, None] == [list(range(classes))]
    return float(score(truth, chances))


NAMED = {
    name: Metric(
        partial(_score, name), name, name not in ("mae", "rmse"), percent=name in CLASS_METRICS
    )
    for name in METRICS
}
