"""The score that selects the best model: by name, a function, or a metric of torchmetrics."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason, users_code
from gistgnn.training.names import METRICS, check_choice, find, name_of
from gistgnn.utils.checks import shown
from gistgnn.utils.lazy import Registry


@dataclass(frozen=True)
class Metric:
    """A score of a model's output, which selects the best model.

    Example:
        >>> fit(graph, epochs=100, metric=Metric(my_error, higher_is_better=False))

    Args:
        function: called as `function(logits, targets)` with the output [n, C] of a split's nodes and their targets. It
            returns one number. Or an object with `update`, `compute` and `reset`, such as a metric of torchmetrics.
        name: what history and reports call it; "": the function's own name.
        higher_is_better: False for an error; None: as the function's own attribute `higher_is_better` says, or True.
        percent: the score is a share from 0 to 1, which reports show in per cent.
    """

    function: Callable[[Tensor, Tensor], Any]
    name: str = ""
    higher_is_better: bool | None = None
    percent: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"metric is {shown(self.function)}, expected a function of (logits, targets)")
        if not self.name:
            object.__setattr__(self, "name", name_of(self.function))
        if self.higher_is_better is None:
            own = getattr(self.function, "higher_is_better", None)
            object.__setattr__(self, "higher_is_better", own is not False)

    def __call__(self, logits: Tensor, targets: Tensor) -> float:
        """Return the score.

        Raises:
            InputError: the function fails, or does not return a finite number.
        """
        metric: Any = self.function
        sizes = f"logits {list(logits.shape)} and targets {list(targets.shape)}"
        with users_code(f"the metric {self.name} fails for {sizes}"):
            if not all(hasattr(metric, name) for name in ("update", "compute", "reset")):
                return self.number(metric(logits, targets))
            metric = metric.to(logits.device) if isinstance(metric, nn.Module) else metric
            metric.reset()
            metric.update(logits, targets)
            return self.number(metric.compute())

    def number(self, found: Any) -> float:
        """Return what the function has returned as a number; raise InputError if it is none, or not finite."""
        try:
            value = float(found)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"the metric {self.name} returned a {type(found).__name__} ({reason(error)}): return one number"
            ) from error
        if not math.isfinite(value):
            raise InputError(f"the metric {self.name} is {value}: return a finite number")
        return value

    def better(self, score: float, best: float | None) -> bool:
        """Whether a score is better than the best one so far; None: there is none."""
        return best is None or (score > best if self.higher_is_better else score < best)

    def as_dict(self) -> dict[str, Any]:
        """Return the metric's entry in result.json."""
        return {"name": self.name, "higher_is_better": self.higher_is_better, "percent": self.percent}


_HOMES = ["metric"] * 3 + ["named_metrics"] * (len(METRICS) - 3)  # scikit-learn is slow to import
NAMED: Registry[Metric] = Registry(
    {name: f"gistgnn.training.{home}:{name.upper()}" for name, home in zip(METRICS, _HOMES, strict=True)}
)
"""The metrics that have names."""


def as_metric(metric: "Metric | Callable[[Tensor, Tensor], Any] | str") -> Metric:
    """Return the metric that was given by name, as `package.module:function`, as a function or as a `Metric`."""
    check_choice("metric", metric)
    found = find("metric", metric)
    if isinstance(found, str):
        return NAMED[found]
    return found if isinstance(found, Metric) else Metric(found, name=metric if isinstance(metric, str) else "")


def predicted_labels(logits: Tensor, multi_label: bool) -> Tensor:
    """Return predicted classes [N], or for a multi-label graph predicted labels [N, K] of 0 and 1."""
    return (logits > 0).long() if multi_label else logits.argmax(dim=1)


def of_labels(name: str, score: Callable[[Tensor, Tensor], float]) -> Metric:
    """Return the metric of predicted classes [N] or labels [N, K]; `score` gets the true ones and these."""
    return Metric(lambda y, targets: score(targets.long(), predicted_labels(y, targets.dim() == 2)), name, percent=True)


def _accuracy(truth: Tensor, guess: Tensor) -> float:
    """The share of nodes with the right class, or with all labels right."""
    right = guess == truth
    return float((right if right.dim() == 1 else right.all(dim=1)).double().mean())


def _counts(truth: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
    """Return for every class twice its hits, and how often it is guessed or true: two [C]."""
    if truth.dim() == 2:
        hits, found = (truth * guess).sum(dim=0), (truth + guess).sum(dim=0)
    else:
        classes = int(torch.maximum(truth.max(), guess.max())) + 1
        hits = torch.bincount(truth[truth == guess], minlength=classes)
        found = torch.bincount(truth, minlength=classes) + torch.bincount(guess, minlength=classes)
    return 2 * hits.double(), found.double()


def _f1_micro(truth: Tensor, guess: Tensor) -> float:
    hits, found = _counts(truth, guess)
    return float(hits.sum() / found.sum().clamp(min=1))


def _f1_macro(truth: Tensor, guess: Tensor) -> float:
    """The mean over the classes that are true or guessed; of several labels, over all, where an absent one counts 0."""
    hits, found = _counts(truth, guess)
    there = found > 0 if truth.dim() == 1 else torch.ones_like(found, dtype=torch.bool)
    return float((hits[there] / found[there].clamp(min=1)).mean())


_SCORES = {"accuracy": _accuracy, "f1_micro": _f1_micro, "f1_macro": _f1_macro}
ACCURACY, F1_MICRO, F1_MACRO = (of_labels(name, score) for name, score in _SCORES.items())


def label_scores(truth: Tensor, guess: Tensor) -> dict[str, float]:
    """Return what these metrics give, by name, for true and predicted classes [N] or labels [N, K]."""
    truth = truth.long()
    return {name: score(truth, guess) for name, score in _SCORES.items()}
