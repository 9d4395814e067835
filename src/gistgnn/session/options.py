"""The arguments of `GIST.fit` that are not settings of training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gistgnn.evaluation import Evaluation
from gistgnn.sampling import Sampling
from gistgnn.session.saving import Saving


@dataclass(frozen=True)
class Options:
    """The arguments of `GIST.fit` that are not settings of training; see there."""

    sampler: Sampling | None
    runner: str
    inductive: bool
    evaluation: Evaluation
    progress: bool
    report: Callable[[dict[str, Any]], None]
    advance: Callable[[int, int], None]
    stop: Callable[[], bool]
    saving: Saving | None
    callbacks: Sequence[Any] = ()
    init: nn.Module | Mapping[str, Tensor] | None = None
    max_seconds: float | None = None
