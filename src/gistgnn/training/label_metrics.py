"""The metrics of labels that every run has: accuracy and F1. They need torch alone, so that a run starts soon."""

from collections.abc import Callable

import torch
from torch import Tensor

from gistgnn.training.metric import Metric


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
