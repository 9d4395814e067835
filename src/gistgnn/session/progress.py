"""How far a run has come."""

from dataclasses import dataclass, field
from typing import Any

from gistgnn.session.scorer import ScoreTable


@dataclass
class Progress:
    """How far a run has come; a checkpoint holds it.

    Args:
        stopped_early: the run ended before its last round, and is finished all the same.
        stopped_by: what ended it: "patience", "max_seconds" or "callback".
        chosen: for a budget: the settings in use, the reason, and times of steps.
    """

    rounds: int = 0
    steps: int = 0
    train_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    best_round: int = -1
    best_score: float | None = None
    best: ScoreTable = field(default_factory=dict)
    last: ScoreTable = field(default_factory=dict)
    evaluations_since_best: int = 0
    stopped_early: bool = False
    stopped_by: str | None = None
    chosen: dict[str, Any] | None = None
