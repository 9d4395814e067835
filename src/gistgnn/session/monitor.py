"""What happens between rounds: evaluation, the best Θ, early stopping, history, checkpoints, time."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gistgnn.errors import InputError
from gistgnn.global_model import GlobalModel
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.session.callbacks import Run
from gistgnn.session.result import Progress
from gistgnn.session.saving import Saver
from gistgnn.session.scorer import Scorer
from gistgnn.settings import Training
from gistgnn.utils.checks import LONGEST, check_number


class Stopwatch:
    """Adds up the seconds of every activity of a run.

        with seconds("train"):
            ...

    The activities are "prepare" (clusters, first batch), "take" (subGCNs), "train" (subTrain with its batches), "merge"
    (subAgg), "evaluate" (scores) and "save" (checkpoints).

    Args:
        seconds: of every activity before a run was resumed; None: it begins.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = {} if seconds is None else seconds

    @contextmanager
    def __call__(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity, also where the block raises an error."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - begun


class TimeLimit:
    """Says when a run has to end, so that its last evaluation ends within a number of seconds.

    Args:
        seconds: from `begun` on; None: there is no limit.
        begun: when the run began, by `time.perf_counter`.
        budget: the run has a budget, which limits its time as well.
    """

    def __init__(self, seconds: float | None, begun: float, *, budget: bool = False) -> None:
        if seconds is not None:
            check_number("max_seconds", seconds, above=True, below=LONGEST)
            if budget:
                raise InputError(f"max_seconds is {seconds:g}, but a budget limits the time as well: leave one out")
        self.set = seconds is not None
        self._end = begun + (seconds or 0.0)
        self._round = self._evaluation = 0.0  # the longest ones so far
        self._begun = time.perf_counter()  # of the round

    def is_up(self) -> bool:
        """Whether there is no time for one more round and its evaluation; asked at the end of a round."""
        now = time.perf_counter()
        self._round = max(self._round, now - self._begun)
        return self.set and now + self._round + 2 * self._evaluation > self._end

    def evaluated(self, seconds: float) -> None:
        """Note how long an evaluation took."""
        self._evaluation = max(self._evaluation, seconds)

    def begin_round(self) -> None:
        """Note that the next round begins."""
        self._begun = time.perf_counter()


class Monitor:
    """Watches a run between its rounds: evaluates, keeps the best Θ, stops early, saves, writes the history.

    Args:
        schedule: the run's rounds, as far as they are known.
        preparing: the seconds of preparing the run, which are added to those of a resumed run.

    Attributes:
        run: the run as its callbacks see it.
    """

    def __init__(
        self,
        trainer: GlobalModel,
        scorer: Scorer,
        training: Training,
        schedule: Schedule,
        callbacks: Sequence[Any],
        saver: Saver | None,
        preparing: Stopwatch,
        limit: TimeLimit,
    ) -> None:
        self.progress = Progress()
        self.interrupted = False
        self._trainer, self._theta, self._scorer = trainer, trainer.theta, scorer
        self._training, self._callbacks, self._saver = training, callbacks, saver
        if saver and (checkpoint := saver.begin()):
            self.progress = checkpoint.state_as(Progress)
            trainer.ranks.together(lambda: self._theta.restore(checkpoint, self.progress.rounds))
        for activity, seconds in preparing.seconds.items():
            self.progress.seconds[activity] = self.progress.seconds.get(activity, 0.0) + seconds
        if self.progress.stopped_by == "max_seconds":  # a resumed run has more time
            self.progress.stopped_early, self.progress.stopped_by = False, None
        self.run, self._limit = Run(trainer, self.progress, schedule), limit
        self.seconds = Stopwatch(self.progress.seconds)
        self._clock = time.perf_counter()

    def after_round(self, plan: RoundPlan, loss: float) -> bool:
        """Record a round; return True to end the run."""
        progress = self.progress
        progress.train_seconds += time.perf_counter() - self._clock
        progress.rounds += 1
        if self._saver:
            self._saver.round_is_over(progress.rounds)
        progress.steps += plan.stretch.count * plan.workers
        finished = progress.rounds >= self.run.rounds
        time_is_up = self._limit.set and self._trainer.ranks.any(self._limit.is_up()) and not finished
        if progress.rounds % plan.evaluate_every == 0 or plan.last or time_is_up:
            with self.seconds("evaluate"):
                self._evaluate(plan, loss)
        self.call("on_round_end", loss)
        asked = self._trainer.ranks.gather([self.run.stopped, self.run.interrupted])
        stopped, interrupted = map(any, zip(*asked, strict=True))
        progress.stopped_by = None if finished else "max_seconds" if time_is_up else self._reason_to_stop(stopped)
        progress.stopped_early = progress.stopped_by is not None
        if progress.stopped_early and not progress.history:
            with self.seconds("evaluate"):
                self._evaluate(plan, loss)
        self.interrupted = interrupted and not finished
        with self.seconds("save"):
            self._save(last=finished or progress.stopped_early or self.interrupted)
        self._clock = time.perf_counter()
        self._limit.begin_round()
        return progress.stopped_early or self.interrupted

    def call(self, hook: str, *given: Any) -> None:
        """Call a method of every callback that has it."""
        for callback in self._callbacks:
            if callable(own := getattr(callback, hook, None)):
                own(self.run, *given)

    def _reason_to_stop(self, stopped: bool) -> str | None:
        patience = self._training.patience
        if patience is not None and self.progress.evaluations_since_best >= patience:
            return "patience"
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
        self.call("on_evaluation", entry)

    def _save(self, *, last: bool) -> None:
        if self._saver is None:
            return
        if last or self._theta.lasts or self._saver.due(self.progress.rounds):
            self._saver.save(self.progress.rounds, vars(self.progress))
        if last:
            self._saver.finish()
