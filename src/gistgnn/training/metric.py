"""The score that selects the best model: by name, a function, or a metric of torchmetrics."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


_HOMES = ["label_metrics"] * 3 + ["named_metrics"] * (len(METRICS) - 3)  # the first three need torch alone
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
