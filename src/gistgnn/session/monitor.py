"""What happens between rounds: evaluation, the best Θ, early stopping, history, checkpoints."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gistgnn.accounting.stopwatch import Stopwatch
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.session.saving import Saver
from gistgnn.session.scorer import Scorer, ScoreTable
from gistgnn.session.trainer import Trainer
from gistgnn.settings import Training


@dataclass
class Progress:
    """How far a run has come."""

    rounds: int = 0
    steps: int = 0
    train_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    best_round: int = -1
    best_score: float = -1.0
    best: ScoreTable = field(default_factory=dict)
    last: ScoreTable = field(default_factory=dict)
    evaluations_since_best: int = 0
    stopped_early: bool = False
    chosen: dict[str, Any] | None = None  # for a budget: the settings in use, the reason, and times of steps


@dataclass(frozen=True)
class Callbacks:
    """Callbacks supplied by the caller.

    Args:
        advance: called after every round with the number of rounds done.
        report: called with every entry of the history.
        stop: asked after every round; True saves the state and ends the run, on all ranks.
    """

    advance: Callable[[int], None]
    report: Callable[[dict[str, Any]], None]
    stop: Callable[[], bool]


class Monitor:
    """Watches a run between its rounds: evaluates, keeps the best Θ, stops early, saves, writes the history.

    Args:
        trainer: has the global parameters.
        scorer: scores Θ on validation and test nodes.
        training: the run's settings.
        schedule: its rounds, as far as they are known.
        callbacks: for a progress bar and a stop signal.
        saver: saves the state of the run, or None.
        preparing: the seconds of preparing the run, which are added to those of a resumed run.

    Attributes:
        schedule: the rounds of the run.

    Raises:
        InputError: the checkpoint to resume from cannot be read, or is of another run.
    """

    def __init__(
        self,
        trainer: Trainer,
        scorer: Scorer,
        training: Training,
        schedule: Schedule,
        callbacks: Callbacks,
        saver: Saver | None,
        preparing: Stopwatch,
    ) -> None:
        self.progress = Progress()
        self.interrupted = False
        self._trainer, self._theta, self._scorer, self.schedule = trainer, trainer.theta, scorer, schedule
        self._training, self.callbacks, self._saver = training, callbacks, saver
        if saver and (checkpoint := saver.begin()):
            self.progress = checkpoint.state_as(Progress)
            trainer.ranks.together(lambda: self._theta.restore(checkpoint, self.progress.rounds))
        for activity, seconds in preparing.seconds.items():
            self.progress.seconds[activity] = self.progress.seconds.get(activity, 0.0) + seconds
        self.seconds = Stopwatch(self.progress.seconds)
        self._clock = time.perf_counter()

    def after_round(self, plan: RoundPlan, loss: float) -> bool:
        """Record a round; return True to end the run."""
        progress = self.progress
        progress.train_seconds += time.perf_counter() - self._clock
        progress.rounds += 1
        if self._saver:
            self._saver.round_is_over()
        self.callbacks.advance(progress.rounds)
        progress.steps += plan.stretch.count * plan.workers
        finished = progress.rounds >= self.schedule.rounds
        if progress.rounds % self._training.evaluate_every == 0 or plan.last:
            with self.seconds("evaluate"):
                self._evaluate(plan, loss)
        patience = self._training.patience
        impatient = patience is not None and progress.evaluations_since_best >= patience
        progress.stopped_early = impatient and not finished
        self.interrupted = self.callbacks.stop() and not finished
        with self.seconds("save"):
            self._save(last=finished or progress.stopped_early or self.interrupted)
        self._clock = time.perf_counter()
        return progress.stopped_early or self.interrupted

    def close(self) -> None:
        """Wait for pending writes; ignore their errors."""
        if self._saver:
            self._saver.close()

    def _evaluate(self, plan: RoundPlan, loss: float) -> None:
        progress = self.progress
        progress.last = self._scorer(self._trainer.stand_in(plan))
        score = progress.last["validation"][self._scorer.choice]
        progress.evaluations_since_best += 1
        better = score > progress.best_score
        if better:
            progress.best_score, progress.evaluations_since_best = score, 0
        if better or self._scorer.latest_counts:
            progress.best, progress.best_round = progress.last, progress.rounds
            self._theta.keep_best()
        entry = {
            "round": progress.rounds,
            "epoch": plan.epoch,
            "step": plan.stretch.first + plan.stretch.count,
            "loss": loss,
            "lr": plan.rate,
            "validation": score,
            "test": progress.last["test"][self._scorer.choice],
            "train_seconds": progress.train_seconds,
        }
        progress.history.append(entry)
        self.callbacks.report(entry)

    def _save(self, *, last: bool) -> None:
        if self._saver is None:
            return
        if last or self._theta.lasts or self._saver.due(self.progress.rounds):
            self._saver.save(self.progress.rounds, vars(self.progress))
        if last:
            self._saver.finish()
