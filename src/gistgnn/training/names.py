"""The names of losses, metrics, optimisers and schedules, and of those that a user brings.

They are checked here, without a graph.

This module imports nothing slow: the command line reads it.
"""

import inspect
import os
import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Literal, get_args
from zlib import crc32

from gistgnn.errors import InputError, users_code
from gistgnn.utils.checks import check_number, shown

LossName = Literal["cross-entropy", "binary-cross-entropy", "mse", "l1", "huber"]
MetricName = Literal[
    "accuracy",
    "f1_micro",
    "f1_macro",
    "balanced_accuracy",
    "roc_auc",
    "average_precision",
    "r2",
    "mae",
    "rmse",
]
OptimizerName = Literal["adam", "adamw", "sgd"]
ScheduleName = Literal["constant", "step", "cosine"]
UpdateRule = Literal["adam", "sgd"]
"""How a step follows from the gradient: it does not depend on the gradient's scale, or it is
proportional to it.
"""

CLASS_LOSSES = ("cross-entropy", "binary-cross-entropy")
"""The losses for classes and labels. All other losses are for regression."""

CLASS_METRICS = (
    "accuracy",
    "f1_micro",
    "f1_macro",
    "balanced_accuracy",
    "roc_auc",
    "average_precision",
)
"""The metrics for classes and labels. All other metrics are for regression."""

METRICS: tuple[str, ...] = get_args(MetricName)

NAMES: Mapping[str, tuple[str, ...]] = {
    "loss": get_args(LossName),
    "metric": METRICS,
    "optimizer": get_args(OptimizerName),
    "schedule": get_args(ScheduleName),
}
"""The names that are known, by the setting of `Training`."""

_CONTRACTS = {
    "model": "a function of (in_features, hidden, classes) that returns a module",
    "loss": "a function of (logits, targets)",
    "metric": "a function of (logits, targets)",
    "optimizer": "a torch.optim class, or a function of (parameters, lr)",
    "schedule": "a function of the progress from 0 to 1, or a class of torch.optim.lr_scheduler",
}


def check_choice(setting: str, value: Any) -> None:
    """Raise InputError unless the value fits a setting of `NAMES`.

    It is a known name, `package.module:function`, or callable.
    """
    if is_users_own(value) or (isinstance(value, str) and value in NAMES[setting]):
        return
    names = ", ".join(NAMES[setting])
    raise InputError(
        f"{setting} is {shown(value)}, expected one of {names}, or {_CONTRACTS[setting]}"
    )


def is_users_own(value: Any) -> bool:
    """Whether the user brings it: a function, an object, or the text `package.module:function`."""
    return callable(value) or adds_up(value) or (isinstance(value, str) and ":" in value)


def adds_up(metric: Any) -> bool:
    """Whether a metric is an object with `update`, `compute` and `reset`, as of torchmetrics."""
    methods = ("update", "compute", "reset")
    return not isinstance(metric, type) and all(hasattr(metric, name) for name in methods)


def find_named(setting: str, value: Any) -> Any:
    """Return the function of `package.module:function` or `path/to/file.py:function`.

    Any other value is returned as it is.
    """
    # Modules in the working directory are found as well, as by `python -m`. A file finds the
    # modules beside it.
    if not isinstance(value, str) or ":" not in value:
        return value
    where, _, name = value.rpartition(":")
    file = os.path.abspath(where) if where.endswith(".py") else None
    folder = os.path.dirname(file) if file else os.getcwd()
    sys.path.insert(0, folder)
    expected = "expected package.module:function, or path/to/file.py:function"
    try:
        with users_code(f"{setting} is {value!r}, which cannot be imported", expected):
            # A pipe would wait for ever.
            if file and os.path.exists(file) and not os.path.isfile(file):
                raise OSError("it is no regular file")
            function = attrgetter(name)(_load_module(file)) if file else resolve_name(value)
    finally:
        sys.path.remove(folder)
    if not (callable(function) or adds_up(function)):
        raise InputError(
            f"{setting} is {value!r}, a {type(function).__name__}: expected {_CONTRACTS[setting]}"
        )
    return function


_FOLDERS: set[str] = set()  # of users' files


def _forget_namesakes(folder: str) -> None:
    """Let a file find the modules beside it.

    A file in another folder may have imported modules of the same names.
    """
    namesakes = set()
    for name, module in sys.modules.items():
        parent, file = os.path.split(getattr(module, "__file__", None) or "")
        parent = os.path.dirname(parent) if file == "__init__.py" else parent
        if "." not in name and parent in _FOLDERS - {folder}:
            neighbour = os.path.join(folder, name)
            if os.path.isfile(f"{neighbour}.py") or os.path.isdir(neighbour):
                namesakes.add(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in namesakes]:
        del sys.modules[name]
    _FOLDERS.add(folder)


@cache
def _load_module(path: str) -> ModuleType:
    """Return a file of Python as a module; it runs once."""
    _forget_namesakes(os.path.dirname(path))
    # Files of the same name in two folders are two modules.
    name = (
        f"gistgnn_own_{os.path.basename(path).removesuffix('.py')}_{crc32(os.fsencode(path)):08x}"
    )
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters_of(function: Any) -> list[str]:
    """Return the names of a function's arguments; a function of C has none."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def named_as(value: Any) -> str | None:
    """Return what records and messages call a loss, a metric, an optimiser or a schedule.

    A name stays as it is.
    """
    # A partial has its plain keywords as well: `cross_entropy(label_smoothing=0.1)`.
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, partial):
        plain = (
            f"{key}={argument!r}"
            for key, argument in value.keywords.items()
            if isinstance(argument, (bool, int, float, str))
        )
        return f"{named_as(value.func)}({', '.join(plain)})"
    name = getattr(value, "name", None) or getattr(value, "__qualname__", None)
    return str(name).rpartition("<locals>.")[2] if isinstance(name, str) else type(value).__name__


def as_weights(weights: Any) -> Literal["balanced"] | tuple[float, ...]:
    """Return "balanced", or the weights of the classes as numbers.

    Raises InputError if they are neither.
    """
    expected = "expected balanced, or a number for each class"
    if isinstance(weights, str):
        if weights != "balanced":
            raise InputError(f"class_weights is {shown(weights)}, {expected}")
        return "balanced"
    with users_code(f"class_weights is {shown(weights)}", expected):
        numbers = tuple(float(weight) for weight in weights)
    return tuple(check_number("a number of class_weights", weight) for weight in numbers)
