"""Checks of loss, metric, optimiser and schedule that need no graph and no model."""

from collections.abc import Mapping
from typing import Any

from gistgnn.errors import InputError
from gistgnn.training.names import NAMES, Absent, check_choice, name_of
from gistgnn.utils.checks import check_number, shown


def as_weights(weights: Any) -> tuple[float, ...]:
    """Return the weights of the classes as numbers; raise InputError if they are none."""
    try:
        return tuple(float(weight) for weight in weights)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        expected = "expected balanced, or a number for each class"
        raise InputError(f"class_weights is {shown(weights)}, {expected}") from error


def check_functions(settings: Mapping[str, Any]) -> None:
    """Raise InputError unless loss, metric, optimizer, schedule, class_weights and label_smoothing fit together."""
    for name in NAMES:
        if settings[name] is not None or name in ("optimizer", "schedule"):
            check_choice(name, settings[name])
    if callable(settings["schedule"]) and not isinstance(settings["schedule"], Absent):
        from gistgnn.training.schedule import check_schedule  # these modules import torch

        check_schedule(settings["schedule"])
    loss, weights, smoothing = settings["loss"], settings["class_weights"], settings["label_smoothing"]
    check_number("label_smoothing", smoothing, below=1.0)
    if isinstance(weights, str) and weights != "balanced":
        raise InputError(f"class_weights is {shown(weights)}, expected balanced, or a number for each class")
    for weight in () if weights is None or isinstance(weights, str) else weights:
        check_number("a number of class_weights", weight)
    if (weights is not None or smoothing) and (callable(loss) or ":" in (loss or "")):
        name = "label_smoothing" if weights is None else "class_weights"
        raise InputError(f"{name} is given beside the loss {name_of(loss)}: set it in that loss")
