"""What happens between rounds: evaluation, the best Θ, early stopping, history, checkpoints."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gistgnn.checkpoint import Checkpoint, load_checkpoint
from gistgnn.runners import Stretch
from gistgnn.scoring import ScoreTable
from gistgnn.settings import Training
from gistgnn.theta import Theta


@dataclass(frozen=True)
class Saving:
    """Where and how often a run's state is saved.

    Args:
        path: the checkpoint file.
        every: rounds between checkpoints, or None to save only when the run is stopped.
        resume: go on from the file, if there is one.
        config: what else tells this run from others, such as a model's dropout; it must be the same on resuming.
    """

    path: Path
    every: int | None = None
    resume: bool = False
    config: dict[str, Any] = field(default_factory=dict)


@dataclass
class Progress:
    """What a run has done so far."""

    rounds: int = 0
    steps: int = 0
    train_seconds: float = 0.0
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
        score: returns the scores of Θ as it stands, for "validation" and "test".
        chooses: which validation score says which Θ is best, "accuracy" or "f1_micro".
        training: the run's settings.
        sub_gcns: m.
        hooks: progress bar, stop signal, checkpoint file.
        run: what this run is, to tell its checkpoint from another's.

    Raises:
        InputError: the checkpoint to go on from cannot be read, or is of another run.
    """

    def __init__(
        self,
        theta: Theta,
        score: Callable[[], ScoreTable],
        chooses: str,
        training: Training,
        sub_gcns: int,
        hooks: Hooks,
        run: dict[str, Any],
    ) -> None:
        self.progress = Progress()
        self.interrupted = False
        self._theta, self._score, self._chooses = theta, score, chooses
        self._training, self._sub_gcns = training, sub_gcns
        self.hooks, self._run = hooks, run
        if (saving := hooks.saving) and saving.resume and saving.path.exists():
            self._restore(saving.path)
        self._clock = time.perf_counter()

    def after_round(self, stretch: Stretch, loss: float) -> bool:
        """Record a round; return True if the run is to stop."""
        progress = self.progress
        progress.train_seconds += time.perf_counter() - self._clock
        progress.rounds += 1
        self.hooks.advance(progress.rounds)
        progress.steps += stretch.count * self._sub_gcns
        finished = stretch.first + stretch.count >= stretch.total
        if progress.rounds % self._training.evaluate_every == 0 or finished:
            self._evaluate(stretch, loss)
        patience = self._training.patience
        impatient = patience is not None and progress.evaluations_since_best >= patience
        progress.stopped_early = impatient and not finished
        self.interrupted = self._theta.any_of(self.hooks.stop()) and not finished
        saving = self.hooks.saving
        if saving and (self.interrupted or self._theta.lasts or (saving.every and progress.rounds % saving.every == 0)):
            self._theta.led(lambda: self._save(saving.path))
        self._clock = time.perf_counter()
        return progress.stopped_early or self.interrupted

    def _evaluate(self, stretch: Stretch, loss: float) -> None:
        progress, done = self.progress, stretch.first + stretch.count
        progress.last = self._score()
        score = progress.last["validation"][self._chooses]
        progress.evaluations_since_best += 1
        if score > progress.best_score:
            progress.best_score, progress.best, progress.best_round = score, progress.last, progress.rounds
            progress.evaluations_since_best = 0
            self._theta.keep_best()
        entry = {
            "round": progress.rounds,
            "epoch": self._training.epochs * done / stretch.total,
            "step": done,
            "loss": loss,
            "lr": self._training.rate((done - 1) / stretch.total),
            "validation": score,
            "test": progress.last["test"][self._chooses],
            "train_seconds": progress.train_seconds,
        }
        progress.history.append(entry)
        self.hooks.report(entry)

    def _save(self, path: Path) -> None:
        Checkpoint(self._theta.checkpoint(), vars(self.progress), self._run).save(path)

    def _restore(self, path: Path) -> None:
        found = load_checkpoint(path, self._run)
        self.progress = Progress(**found.state)
        self._theta.restore(found.tensors, self.progress.rounds)
