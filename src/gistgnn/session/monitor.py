"""What happens between rounds: evaluation, the best Θ, early stopping, history, checkpoints."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gistgnn.accounting.stopwatch import Stopwatch
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.session.callbacks import Run, call
from gistgnn.session.progress import Progress
from gistgnn.session.saving import Saver
from gistgnn.session.scorer import Scorer
from gistgnn.session.time_limit import TimeLimit
from gistgnn.session.trainer import Trainer
from gistgnn.settings import Training


@dataclass(frozen=True)
class Callbacks:
    """Callbacks supplied by the caller.

    Args:
        advance: called after every round with the number of rounds done.
        report: called with every entry of the history.
        stop: asked after every round; True saves the state and ends the run, on all ranks.
        objects: objects with methods of `gistgnn.Callback`.
    """

    advance: Callable[[int], None]
    report: Callable[[dict[str, Any]], None]
    stop: Callable[[], bool]
    objects: Sequence[Any] = ()


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
        limit: of the run's time.

    Attributes:
        schedule: the rounds of the run.
        run: the run as its callbacks see it.

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
        limit: TimeLimit,
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
        if self.progress.stopped_by == "max_seconds":  # a resumed run has more time
            self.progress.stopped_early, self.progress.stopped_by = False, None
        self.run, self._limit = Run(trainer, self.progress), limit
        self.seconds = Stopwatch(self.progress.seconds)
        self._clock = time.perf_counter()

    def after_round(self, plan: RoundPlan, loss: float) -> bool:
        """Record a round; return True to end the run."""
        progress = self.progress
        progress.train_seconds += time.perf_counter() - self._clock
        progress.rounds += 1
        if self._saver:
            self._saver.round_is_over(progress.rounds)
        self.callbacks.advance(progress.rounds)
        progress.steps += plan.stretch.count * plan.workers
        finished = progress.rounds >= self.schedule.rounds
        time_is_up = self._limit.set and self._trainer.ranks.any(self._limit.is_up()) and not finished
        self.run.rounds = self.schedule.rounds
        if progress.rounds % plan.evaluate_every == 0 or plan.last or time_is_up:
            with self.seconds("evaluate"):
                self._evaluate(plan, loss)
        call(self.callbacks.objects, "on_round_end", self.run, loss)
        progress.stopped_by = None if finished else "max_seconds" if time_is_up else self._reason_to_stop()
        progress.stopped_early = progress.stopped_by is not None
        if progress.stopped_early and not progress.history:
            with self.seconds("evaluate"):
                self._evaluate(plan, loss)
        self.interrupted = self.callbacks.stop() and not finished
        with self.seconds("save"):
            self._save(last=finished or progress.stopped_early or self.interrupted)
        self._clock = time.perf_counter()
        self._limit.begin_round()
        return progress.stopped_early or self.interrupted

    def _reason_to_stop(self) -> str | None:
        patience = self._training.patience
        if patience is not None and self.progress.evaluations_since_best >= patience:
            return "patience"
        stopped = bool(self.callbacks.objects) and self._trainer.ranks.any(self.run.stopped)
        return "callback" if stopped else None

    def close(self) -> None:
        """Wait for pending writes; ignore their errors."""
        if self._saver:
            self._saver.close()

    def _evaluate(self, plan: RoundPlan, loss: float) -> None:
        progress, metric, begun = self.progress, self._scorer.metric, time.perf_counter()
        progress.last = self._scorer(self._trainer._stand_in(plan))
        score = progress.last["validation"][metric.name]
        progress.evaluations_since_best += 1
        better = metric.better(score, progress.best_score)
        if better:
            progress.best_score, progress.evaluations_since_best = score, 0
        if better or self._scorer.latest_counts:
            progress.best, progress.best_round = progress.last, progress.rounds
            self._theta.keep_best()
        entry: dict[str, Any] = {
            "round": progress.rounds,
            "epoch": plan.epoch,
            "step": plan.stretch.first + plan.stretch.count,
            "loss": loss,
            "lr": plan.rate,
            "validation": score,
            "test": progress.last["test"][metric.name],
            "train_seconds": progress.train_seconds,
        }
        if self._training.metric is not None:
            entry["metric"] = metric.name
        progress.history.append(entry)
        self._limit.evaluated(time.perf_counter() - begun)
        self.callbacks.report(entry)
        call(self.callbacks.objects, "on_evaluation", self.run, entry)

    def _save(self, *, last: bool) -> None:
        if self._saver is None:
            return
        if last or self._theta.lasts or self._saver.due(self.progress.rounds):
            self._saver.save(self.progress.rounds, vars(self.progress))
        if last:
            self._saver.finish()
