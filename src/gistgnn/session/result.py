"""The result of a run."""

from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

from gistgnn.session.progress import Progress


@dataclass
class Result:
    """What `GIST.fit` returns.

    Args:
        model: the user's own module at full width, with the parameters of the best validation score.
        progress: history, best and last scores, rounds, steps, seconds.
        interrupted: the run was stopped before its end by `stop`.
        peak_memory_bytes: the most memory the process held.
        evaluation: how the model was scored: "method", "exact" or not, and the method's own values.
        communication: what ranks have exchanged (see `gistgnn.distributed.communication`), or None without ranks.
        inference_seconds: the median time of one pass of the model over the whole graph; None: there was no pass.
        traffic: "workers", the number of workers that could train at the same time; "bytes_per_round" or
            "bytes_per_step", the bytes that each would send, by formula.
        memory: bytes that are held during the whole run (see `gistgnn.accounting.footprint`).
        partition: the axes, their features and blocks.
        budget: for a run with a budget, the settings that were chosen, why, and the times of steps; else None.
        local_steps: ζ of every phase, also where it was chosen.
        coverage: which share of Θ was trained in how many rounds (see `gistgnn.accounting.coverage`).
        metric: the score that selected the model: "name", "higher_is_better", and "percent" if it is a share.
    """

    model: nn.Module
    progress: Progress
    interrupted: bool
    peak_memory_bytes: int
    evaluation: dict[str, Any] = field(default_factory=dict)
    communication: dict[str, Any] | None = None
    inference_seconds: float | None = None
    traffic: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    partition: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] | None = None
    local_steps: list[int] = field(default_factory=list)
    metric: dict[str, Any] = field(default_factory=dict)

    @property
    def test(self) -> dict[str, float] | None:
        """The test scores at the best validation score: accuracy, f1_micro, f1_macro."""
        return self.progress.best.get("test")

    @property
    def validation(self) -> dict[str, float] | None:
        """The best validation scores: accuracy, f1_micro, f1_macro."""
        return self.progress.best.get("validation")

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry for each evaluation: round, epoch, step, loss, lr, validation, test, train_seconds."""
        return self.progress.history

    def as_dict(self) -> dict[str, Any]:
        """Return the scores and costs as result.json holds them."""
        progress = ("best_round", "last", "train_seconds", "seconds", "rounds", "steps", "stopped_early", "stopped_by")
        names = [field.name for field in fields(self) if field.name not in ("model", "progress", "interrupted")]
        return {
            "test": self.test,
            "validation": self.validation,
            **{name: getattr(self.progress, name) for name in progress},
            **{name: getattr(self, name) for name in names},
            "history": self.history,
        }
