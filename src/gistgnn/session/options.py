"""The arguments of `GIST.fit` that are not settings of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gistgnn.evaluation import Evaluation
from gistgnn.sampling import Sampling
from gistgnn.session.saving import Saving
from gistgnn.utils.checks import check_flag, check_kind


@dataclass(frozen=True)
class Options:
    """The arguments of `GIST.fit` that are not settings of training; see there."""

    sampler: Sampling | None
    runner: str
    inductive: bool
    evaluation: Evaluation
    progress: bool
    callbacks: Sequence[Any] = ()
    saving: Saving | None = None
    init: nn.Module | Mapping[str, Tensor] | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check what nothing else checks before the first round."""
        for name in ("inductive", "progress"):
            check_flag(name, getattr(self, name))
        check_kind("evaluation", self.evaluation, Evaluation, "an Evaluation, such as Evaluation('layers')")
        check_kind("saving", self.saving, Saving, "a Saving, such as Saving('checkpoints')", none=True)
