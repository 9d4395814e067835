"""What happens between rounds: evaluation, the best Θ, early stopping, history, checkpoints."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gistgnn.accounting.phases import Phases
from gistgnn.runners import Stretch
from gistgnn.session.saving import Saver, Saving
from gistgnn.session.scorer import Scorer, ScoreTable
from gistgnn.settings import Training
from gistgnn.theta import Theta


@dataclass
class Progress:
    """What a run has done so far."""

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


@dataclass(frozen=True)
class Hooks:
    """What the outside has to do with a run.

    Args:
        advance: called after every round with how many are done, for a progress bar.
        report: called with every history entry, likewise.
        stop: asked after every round; True saves the state and ends the run.
        saving: where the state is saved, or None.
    """

    advance: Callable[[int], None]
    report: Callable[[dict[str, Any]], None]
    stop: Callable[[], bool]
    saving: Saving | None


class Monitor:
    """Watches one run of Algorithm 1; `after_round` is called when Θ is whole again.

    Args:
        theta: the global parameters.
        scorer: gives the scores of Θ as it stands, for "validation" and "test".
        chooses: which validation score says which Θ is best, "accuracy" or "f1_micro".
        training: the run's settings.
        workers: how many take the steps of a round.
        hooks: progress bar, stop signal, checkpoints.
        run: what this run is, to tell its checkpoints from another's.
        phases: the seconds so far; those of a run that goes on are added.

    Raises:
        InputError: the checkpoint to go on from cannot be read, or is of another run.
    """

    def __init__(
        self,
        theta: Theta,
        scorer: Scorer,
        chooses: str,
        training: Training,
        workers: int,
        hooks: Hooks,
        run: dict[str, Any],
        phases: Phases,
    ) -> None:
        self.progress = Progress()
        self.interrupted = False
        self._theta, self.scorer, self._chooses = theta, scorer, chooses
        self.training, self._workers = training, workers
        self.hooks = hooks
        self._saver = Saver(theta, hooks.saving, run) if hooks.saving else None
        if self._saver and (found := self._saver.begin()):
            self.progress = found.state_as(Progress)
            theta.together(lambda: theta.restore(found, self.progress.rounds))
        for phase, seconds in phases.seconds.items():
            self.progress.seconds[phase] = self.progress.seconds.get(phase, 0.0) + seconds
        self.phases = Phases(self.progress.seconds)
        self._clock = time.perf_counter()

    def after_round(self, stretch: Stretch, loss: float) -> bool:
        """Record a round; return True if the run is to stop."""
        progress = self.progress
        progress.train_seconds += time.perf_counter() - self._clock
        progress.rounds += 1
        if self._saver:
            self._saver.round_is_over()
        self.hooks.advance(progress.rounds)
        progress.steps += stretch.count * self._workers
        finished = stretch.first + stretch.count >= stretch.total
        if progress.rounds % self.training.evaluate_every == 0 or finished:
            with self.phases("evaluate"):
                self._evaluate(stretch, loss)
        patience = self.training.patience
        impatient = patience is not None and progress.evaluations_since_best >= patience
        progress.stopped_early = impatient and not finished
        self.interrupted = self._theta.any_of(self.hooks.stop()) and not finished
        with self.phases("save"):
            self._save(last=finished or progress.stopped_early or self.interrupted)
        self._clock = time.perf_counter()
        return progress.stopped_early or self.interrupted

    def close(self) -> None:
        """Wait for what is being written, when the run has ended one way or another."""
        if self._saver:
            self._saver.close()

    def _evaluate(self, stretch: Stretch, loss: float) -> None:
        progress, done = self.progress, stretch.first + stretch.count
        progress.last = self.scorer()
        score = progress.last["validation"][self._chooses]
        progress.evaluations_since_best += 1
        better = score > progress.best_score
        if better:
            progress.best_score, progress.evaluations_since_best = score, 0
        if better or self.scorer.latest_counts:
            progress.best, progress.best_round = progress.last, progress.rounds
            self._theta.keep_best()
        entry = {
            "round": progress.rounds,
            "epoch": self.training.epochs * done / stretch.total,
            "step": done,
            "loss": loss,
            "lr": self.training.rate((done - 1) / stretch.total),
            "validation": score,
            "test": progress.last["test"][self._chooses],
            "train_seconds": progress.train_seconds,
        }
        progress.history.append(entry)
        self.hooks.report(entry)

    def _save(self, *, last: bool) -> None:
        if self._saver is None:
            return
        if last or self._theta.lasts or self._saver.due(self.progress.rounds):
            self._saver.save(self.progress.rounds, vars(self.progress))
        if last:
            self._saver.finish()
