"""Losses: by name, with class weights, and functions that a user brings."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn import Graph
from gistgnn.sampling import whole_graph
from gistgnn.settings import Training
from gistgnn.subtrain import loss_of
from gistgnn.training.loss import Criterion, make_criterion
from tests.helpers.fitting import focal
from tests.helpers.refusals import refused

N = 7
C = 3
RNG = torch.Generator().manual_seed(0)
LOGITS = torch.randn(N, C, generator=RNG)
CLASSES = torch.tensor([0, 0, 0, 0, 1, 1, 2])
LABELS = F.one_hot(CLASSES, C).float()
WEIGHTS = torch.rand(N, generator=RNG)


def made(loss: Any, targets: Tensor = CLASSES, **options: Any) -> Criterion:
    criterion = make_criterion(loss, targets, C, **options)
    assert criterion is not None
    return criterion


LOSSES: dict[str, Any] = {
    "one for each node": focal,
    "module": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]), label_smoothing=0.1),
    "function with reduction": F.cross_entropy,
    "partial": partial(F.multi_margin_loss, margin=0.5),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_the_user_is_the_mean_over_the_nodes_or_their_weighted_sum(name: str) -> None:
    loss = LOSSES[name]
    torch.testing.assert_close(made(loss)(LOGITS, CLASSES), loss(LOGITS, CLASSES).mean())
    if name == "one for each node":
        losses = loss(LOGITS, CLASSES)
    elif name == "module":
        losses = F.cross_entropy(
            LOGITS, CLASSES, loss.weight, label_smoothing=0.1, reduction="none"
        )
    else:
        losses = loss(LOGITS, CLASSES, reduction="none")
    torch.testing.assert_close(made(loss)(LOGITS, CLASSES, WEIGHTS), (losses * WEIGHTS).sum())


@given(members=st.integers(1, 4), weighted=st.booleans(), name=st.sampled_from(sorted(LOSSES)))
@settings(max_examples=20, deadline=None)
def test_every_sub_gcn_has_the_loss_that_it_has_alone(
    members: int, weighted: bool, name: str
) -> None:
    together = torch.randn(members, N, C, generator=torch.Generator().manual_seed(members))
    weights = WEIGHTS if weighted else None
    criterion = made(LOSSES[name])
    alone = torch.stack([criterion(logits, CLASSES, weights) for logits in together])
    torch.testing.assert_close(criterion(together, CLASSES, weights), alone)


def test_balanced_classes_have_the_same_weight_in_sum() -> None:
    criterion = made(None, class_weights="balanced")
    weight = N / (C * torch.tensor([4.0, 2.0, 1.0]))  # These are those of scikit-learn.
    torch.testing.assert_close(
        criterion(LOGITS, CLASSES), F.cross_entropy(LOGITS, CLASSES, weight=weight)
    )
    assert float((weight[CLASSES]).mean()) == pytest.approx(1)
    labels = made(None, LABELS, class_weights="balanced")
    expected = F.binary_cross_entropy_with_logits(
        LOGITS, LABELS, pos_weight=torch.tensor([3 / 4, 5 / 2, 6.0])
    )
    torch.testing.assert_close(labels(LOGITS, LABELS), expected)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("targets", [CLASSES, LABELS], ids=["classes", "labels"])
@pytest.mark.parametrize("class_weights", [None, (1.0, 2.0, 5.0)])
def test_weights_of_nodes_and_classes_serve_logits_of_any_type(
    kind: torch.dtype, targets: Tensor, class_weights: tuple[float, ...] | None
) -> None:
    x = torch.zeros(N, 2)
    edges = torch.arange(N).expand(2, N)
    graph = Graph.build(x, edges, targets, train=[0, 1, 4, 5, 6], val=[2], test=[3])
    batch = whole_graph(graph)
    nodes = batch.loss_nodes
    batch = replace(batch, loss_weights=WEIGHTS[nodes])
    criterion = make_criterion(None, targets, C, class_weights=class_weights)
    logits = LOGITS[nodes].to(kind)
    targets = targets[nodes]
    weight = None if class_weights is None else torch.tensor(class_weights, dtype=kind)
    if targets.dim() == 1:
        losses = F.cross_entropy(logits, targets, weight, reduction="none")
    else:
        losses = F.binary_cross_entropy_with_logits(
            logits, targets.to(kind), pos_weight=weight, reduction="none"
        ).mean(dim=1)
    expected = (losses * WEIGHTS[nodes].to(kind)).sum()
    training = replace(Training(), loss=criterion)
    one = loss_of(logits, batch, training)
    two = loss_of(torch.stack([logits, logits]), batch, training)
    for actual in (one, *two):
        # The result may be of float32 for labels of float32.
        torch.testing.assert_close(actual, expected, check_dtype=False)


def test_losses_by_name_and_smoothing_are_those_of_torch() -> None:
    binary = F.binary_cross_entropy_with_logits(LOGITS, LABELS)
    for name, expected in (
        ("cross-entropy", F.cross_entropy(LOGITS, CLASSES)),
        ("binary-cross-entropy", binary),
    ):
        torch.testing.assert_close(made(name)(LOGITS, CLASSES), expected)
    smooth = made(None, label_smoothing=0.2)
    torch.testing.assert_close(
        smooth(LOGITS, CLASSES), F.cross_entropy(LOGITS, CLASSES, label_smoothing=0.2)
    )
    numbers = made(None, LOGITS + 1, regression=True)
    assert float(numbers(LOGITS, LOGITS + 1)) == pytest.approx(1)
    assert numbers.name == "mse"
    assert make_criterion(None, CLASSES, C) is None


UNFIT: list[tuple[str, Any, Tensor, dict[str, Any]]] = [
    ("the loss is mse, but the targets are classes: use cross-entropy", "mse", CLASSES, {}),
    ("nodes have several labels: use binary-cross-entropy", "cross-entropy", LABELS, {}),
    ("the loss is l1, but the targets are labels", "l1", LABELS, {}),
    (
        "the loss is cross-entropy, but the targets are numbers: use mse",
        "cross-entropy",
        LOGITS,
        {"regression": True},
    ),
    (
        "class_weights is given, but the loss is mse",
        None,
        LOGITS,
        {"regression": True, "class_weights": "balanced"},
    ),
    ("class_weights has 2 numbers, expected 3", None, CLASSES, {"class_weights": [1.0, 2.0]}),
    (
        "label_smoothing is 0.1, but the loss is binary-cross-entropy",
        None,
        LABELS,
        {"label_smoothing": 0.1},
    ),
    ("has parameters", nn.Linear(C, C), CLASSES, {}),
    ("cannot be imported", "no_such_module:loss", CLASSES, {}),
]


def test_losses_that_do_not_fit_are_refused() -> None:
    for message, loss, targets, options in UNFIT:
        with refused(message):
            made(loss, targets, **options)


def test_a_loss_is_tried_before_training() -> None:
    wrong: dict[str, Any] = {
        "returned [7, 7]": lambda logits, targets: (logits[:, :1] - targets) ** 2,
        "cannot take logits [7, 3] and targets [7]": F.binary_cross_entropy_with_logits,
        "has no gradient": lambda logits, targets: (logits.argmax(dim=1) != targets).float(),
        "returned float": lambda logits, targets: 1.0,
    }
    for message, loss in wrong.items():
        with refused(message):
            made(loss).check(C, CLASSES, None)
    for targets in (CLASSES, LABELS):
        with refused("returned [7, 3], expected one number"):
            made(lambda logits, _: logits, targets).check(C, targets, None)
    with refused("returned one number", "sampler weights every node", "reduction='none'"):
        made(lambda logits, targets: F.cross_entropy(logits, targets)).check(C, CLASSES, WEIGHTS)
