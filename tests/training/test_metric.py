"""Metrics: by name, functions, and objects like those of torchmetrics."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor

from gistgnn import Metric
from gistgnn.evaluation.scores import score_of_outputs
from gistgnn.training.metric import NAMED, as_metric
from gistgnn.training.names import METRICS
from tests.helpers.refusals import refused

RNG = torch.Generator().manual_seed(1)
LOGITS = torch.randn(30, 3, generator=RNG)
CLASSES = torch.arange(30) % 3
LABELS = torch.randint(2, (30, 3), generator=RNG).float()


def error(logits: Tensor, targets: Tensor) -> Tensor:
    return (logits.argmax(dim=1) != targets).float().mean()


class LikeTorchmetrics:
    """Adds up over calls, until it is reset."""

    higher_is_better = False
    total = 0.0
    count = 0

    def reset(self) -> None:
        self.total = 0.0
        self.count = 0

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.total = self.total + float(error(preds, target)) * len(target)
        self.count = self.count + len(target)

    def compute(self) -> Tensor:
        return torch.tensor(self.total / self.count)

    def __call__(self, preds: Tensor, target: Tensor) -> Tensor:
        raise AssertionError("update and compute are used")


def test_metrics_by_name_have_the_values_of_scikit_learn() -> None:
    truth = CLASSES.numpy()
    guess = LOGITS.argmax(dim=1).numpy()
    shares = LOGITS.softmax(dim=1).numpy()
    expected = {
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, guess),
        "roc_auc": metrics.roc_auc_score(truth, shares, multi_class="ovr"),
        "average_precision": np.mean(
            [metrics.average_precision_score(truth == k, shares[:, k]) for k in range(3)]
        ),
    }
    for name, value in expected.items():
        assert NAMED[name](LOGITS, CLASSES) == pytest.approx(value)
    assert NAMED["roc_auc"](LOGITS, LABELS) == pytest.approx(
        metrics.roc_auc_score(LABELS.numpy(), LOGITS.numpy())
    )
    assert NAMED["rmse"](LOGITS, LOGITS + 2) == pytest.approx(2)
    assert NAMED["r2"](LOGITS, LOGITS) == 1
    assert [NAMED[name].name for name in METRICS] == list(METRICS)
    two = CLASSES.clamp(max=1)
    margin = LOGITS[:, 1] - LOGITS[:, 0]
    assert NAMED["roc_auc"](LOGITS[:, :2], two) == pytest.approx(
        metrics.roc_auc_score(two.numpy(), margin.numpy())
    )


def test_the_balanced_accuracy_is_the_mean_over_the_true_classes() -> None:
    logits = 5.0 * torch.eye(3)[[0, 2, 1, 1, 2]]
    targets = torch.tensor([0, 0, 1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert NAMED["balanced_accuracy"](logits, targets) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_a_metric_says_which_of_two_scores_is_better() -> None:
    for metric in (
        Metric(error, higher_is_better=False),
        as_metric(LikeTorchmetrics()),
        NAMED["mae"],
    ):
        assert metric.better(0.1, 0.2)
        assert not metric.better(0.2, 0.2)
    assert as_metric(error).better(0.2, 0.1)
    assert as_metric(error).better(-5.0, None)


def test_functions_and_objects_of_the_user_are_metrics_with_names() -> None:
    assert as_metric(error).name == "error"
    assert Metric(error, "share wrong").name == "share wrong"
    for _ in range(2):  # A metric starts anew for every split.
        assert as_metric(LikeTorchmetrics())(LOGITS, CLASSES) == pytest.approx(
            float(error(LOGITS, CLASSES))
        )
    assert as_metric(LikeTorchmetrics()).name == "LikeTorchmetrics"


def test_what_is_no_score_is_refused() -> None:
    for wrong, message in (
        (lambda *_: "high", "returned a str"),
        (lambda logits, _: logits.missing, "fails for logits [30, 3] and targets [30]"),
        (lambda *_: float("nan"), "is nan: return a finite number"),
    ):
        with refused("the metric", message):
            as_metric(wrong)(LOGITS, CLASSES)
    for value in ("acuracy", 3):
        with refused(
            f"metric is {value!r}", "expected one of accuracy", "a function of (logits, targets)"
        ):
            as_metric(value)  # type: ignore[arg-type]
    with refused("the metric is mae, but the targets are classes"):
        NAMED["mae"](LOGITS, CLASSES)


def test_the_average_precision_needs_nodes_of_the_classes_that_it_ranks() -> None:
    score = NAMED["average_precision"]
    first_two = LOGITS[:, :2]
    nodes = len(CLASSES)
    # Of two classes it ranks the second.
    ones = torch.ones(nodes, dtype=torch.long)
    assert score_of_outputs(score, first_two, ones) == 1.0
    with refused("none of these have class 1"):
        score_of_outputs(score, first_two, torch.zeros(nodes, dtype=torch.long))
    with refused("none of these have class 0, 2"):
        score_of_outputs(score, LOGITS, ones)
    labels = torch.zeros(nodes, 3)
    labels[::2, 0] = 1
    labels[:, 1] = 1
    with refused("none of these have class 2"):
        score_of_outputs(score, LOGITS, labels)
    labels[0, 2] = 1
    expected = metrics.average_precision_score(labels.numpy(), LOGITS.sigmoid().numpy())
    assert score_of_outputs(score, LOGITS, labels) == pytest.approx(expected)
