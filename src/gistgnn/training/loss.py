"""The loss of a batch: by name, with class weights, or a function that the user brings."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gistgnn.errors import InputError, users_code
from gistgnn.training.names import CLASS_LOSSES, find_named, named_as, parameters_of

Loss = Callable[[Tensor, Tensor], Tensor]
"""Returns one number or one for each node, of the logits [n, C] and the targets of n nodes."""


Task = Literal["numbers", "classes", "labels"]

_TASKS: dict[Task, tuple[Any, ...]] = {
    "numbers": (
        "mse", "l1", "huber",
        F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.poisson_nll_loss,
        nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss,
    ),
    "classes": (
        "cross-entropy",
        F.cross_entropy, F.nll_loss, F.multi_margin_loss,
        nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss,
    ),
    "labels": (
        "binary-cross-entropy",
        F.binary_cross_entropy_with_logits, F.multilabel_soft_margin_loss,
        nn.BCEWithLogitsLoss, nn.MultiLabelSoftMarginLoss,
    ),
}  # fmt: skip


def task_of(loss: Loss | str | None) -> Task | None:
    """Return what a loss says of the task: numbers, one class of several, or labels of 0 and 1.

    Returns None if it says nothing, as there is none, or it is the user's own. A
    `functools.partial` counts as the function that it is of.
    """
    resolved = find_named("loss", loss)
    while isinstance(resolved, partial):
        resolved = resolved.func
    for task, losses in _TASKS.items():
        classes = tuple(candidate for candidate in losses if isinstance(candidate, type))
        is_named = isinstance(resolved, str) and resolved in losses
        is_function = any(resolved is candidate for candidate in losses)
        if is_named or is_function or isinstance(resolved, classes):
            return task
    return None


class Criterion:
    """A loss as a step calls it: with the logits of one sub-GCN or of several.

    Nodes may have weights.

    Args:
        loss: called as `loss(logits, targets)`, with float32 logits [n, C] and the targets of the
            same n nodes: [n] classes, [n, C] labels of 0 and 1, or [n, C] numbers. It returns one
            number, or one for each node, [n], or for each label, [n, K]. If the sampler weights the
            nodes (GraphSAINT), one number is not enough: a torch loss with `reduction` is asked for
            "none".
        name: of the loss in records.
        record: the settings of `Training` that have led to it, as JSON.
    """

    def __init__(self, loss: Callable[..., Tensor], name: str, record: dict[str, Any]) -> None:
        self.name = name
        self.record = record
        self._loss = loss
        # Gives a value for each node, where torch's `reduction` can be asked for it.
        self._loss_by_node: Any = loss
        if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
            self._loss_by_node = copy.copy(loss)
            self._loss_by_node.reduction = "none"
        elif "reduction" in parameters_of(loss):
            self._loss_by_node = partial(loss, reduction="none")

    def __call__(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over the nodes, or the sum with weights [n], from logits [n, C].

        From logits [m, n, C] it returns [m] numbers.
        """
        if logits.dim() == 3:
            # The loss may be the user's code, so it sees one sub-GCN at a time. It may write into
            # the targets, so each sub-GCN gets a copy.
            return torch.stack(
                [self(sub_logits, targets.clone(), weights) for sub_logits in logits]
            )
        values = (self._loss if weights is None else self._loss_by_node)(logits, targets)
        nodes = len(targets)
        shapes = [(), (nodes,), (nodes, 1)]  # No others: broadcasting is a common mistake.
        if targets.dim() == 2:
            shapes.append(tuple(logits.shape))
        if not isinstance(values, Tensor) or values.shape not in shapes or values is logits:
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise InputError(
                f"the loss {self.name} returned {got}, expected one number, or one for each node"
            )
        if weights is None:
            return values.mean()
        if not values.dim():
            raise InputError(
                f"the loss {self.name} returned one number, but the sampler weights every node: "
                f"return [{nodes}] numbers, or take the argument reduction='none'"
            )
        if values.dim() > 1:
            values = values.flatten(1).mean(dim=1)
        return values @ weights.to(values.dtype)

    def check(self, outputs: int, targets: Tensor, weights: Tensor | None) -> None:
        """Raise InputError unless the loss takes random logits and has a gradient."""
        logits = torch.randn(len(targets), outputs, generator=torch.Generator().manual_seed(0))
        logits = logits.to(targets.device).requires_grad_()
        sizes = f"logits {list(logits.shape)} and targets {list(targets.shape)} of {targets.dtype}"
        with users_code(f"the loss {self.name} cannot take {sizes}"):
            value = self(logits, targets, weights)
        if not value.requires_grad:
            raise InputError(
                f"the loss {self.name} has no gradient: compute it from the logits by torch alone"
            )


def make_criterion(
    loss: Loss | str | None,
    targets: Tensor,
    classes: int,
    *,
    class_weights: str | Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    regression: bool = False,
) -> Criterion | None:
    """Return the loss of a run, for the targets of its training nodes.

    Returns None for the plain cross-entropy. A module's buffers move to the device of the targets.
    """
    if loss is None and class_weights is None and not label_smoothing and not regression:
        return None
    record = {
        "loss": named_as(loss),
        "class_weights": class_weights,
        "label_smoothing": label_smoothing,
    }
    resolved = find_named("loss", loss)
    if callable(resolved):
        if isinstance(resolved, nn.Module):
            if any(parameter.requires_grad for parameter in resolved.parameters()):
                raise InputError(
                    f"the loss {named_as(loss)} has parameters that nobody trains: put them in the "
                    "model"
                )
            resolved = resolved.to(targets.device)
        return Criterion(resolved, named_as(loss) or "", record)
    default = "cross-entropy"
    target_kind = "classes"
    if regression:
        default = "mse"
        target_kind = "numbers"
    elif targets.dim() == 2:
        default = "binary-cross-entropy"
        target_kind = "labels"
    name = resolved or default
    if (name in CLASS_LOSSES) == regression:
        suited = "mse, l1 or huber" if regression else "cross-entropy or binary-cross-entropy"
        raise InputError(
            f"the loss is {name}, but the targets are {target_kind}: use {suited}, or a function"
        )
    if name == "cross-entropy" and targets.dim() == 2:
        raise InputError(
            "the loss is cross-entropy, but nodes have several labels: use binary-cross-entropy"
        )
    if label_smoothing and name != "cross-entropy":
        raise InputError(
            f"label_smoothing is {label_smoothing}, but the loss is {name}: use cross-entropy"
        )
    if class_weights is not None and regression:
        raise InputError(
            f"class_weights is given, but the loss is {name}, and numbers have no classes: leave "
            "it out"
        )
    options: dict[str, Any] = {"label_smoothing": label_smoothing} if label_smoothing else {}
    if class_weights is not None:
        options["weight"] = _compute_weights(class_weights, targets, classes)
    return Criterion(partial(_FUNCTIONS[name], **options), name, record)


def _cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Torch's cross-entropy, with class weights [C] of any type, such as float32 for float64."""
    weight = None if weight is None else weight.to(logits.dtype)
    return F.cross_entropy(
        logits, targets, weight=weight, label_smoothing=label_smoothing, reduction=reduction
    )


def _binary_cross_entropy(
    logits: Tensor, targets: Tensor, *, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """One decision for each class; `weight` multiplies the loss of the labels that are 1."""
    labels = targets if targets.dim() == 2 else F.one_hot(targets, logits.shape[1])
    return F.binary_cross_entropy_with_logits(
        logits, labels.to(logits.dtype), pos_weight=weight, reduction=reduction
    )


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": _cross_entropy,
    "binary-cross-entropy": _binary_cross_entropy,
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.huber_loss,
}


def _compute_weights(class_weights: str | Sequence[float], targets: Tensor, classes: int) -> Tensor:
    """Return a weight for each class; for labels, that of a label that is 1."""
    if isinstance(class_weights, str):
        if targets.dim() == 2:
            ones = targets.sum(dim=0)
            return (len(targets) - ones) / ones.clamp(min=1)
        counts = torch.bincount(targets, minlength=classes).clamp(min=1)
        return len(targets) / (classes * counts.float())
    if len(class_weights) != classes:
        raise InputError(
            f"class_weights has {len(class_weights)} numbers, expected {classes}, one for each "
            "class"
        )
    return torch.tensor(class_weights, dtype=torch.float32, device=targets.device)
