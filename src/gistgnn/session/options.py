"""The arguments of `GIST.fit` that are not settings of training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gistgnn.evaluation import Evaluation
from gistgnn.sampling import Sampling
from gistgnn.session.saving import Saving
from gistgnn.utils.checks import check_callable, check_flag, check_kind


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

    def __post_init__(self) -> None:
        """Check what nothing else checks before the first round."""
        for name in ("inductive", "progress"):
            check_flag(name, getattr(self, name))
        check_kind("evaluation", self.evaluation, Evaluation, "an Evaluation, such as Evaluation('layers')")
        check_kind("saving", self.saving, Saving, "a Saving, such as Saving('checkpoints')", none=True)
        check_callable("report", self.report, "a function of an entry of the history")
        check_callable("advance", self.advance, "a function of the rounds done and of all rounds")
        check_callable("stop", self.stop, "a function without arguments that returns True or False")
