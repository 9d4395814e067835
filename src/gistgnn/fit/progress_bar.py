"""The progress of a run on standard error: rounds, scores and the time that is left."""

from typing import Any, Self

from gistgnn.fit.callbacks import Callback, Run
from gistgnn.schedule import Schedule
from gistgnn.utils.formats import duration, plural
from gistgnn.utils.progress import Meter


class ProgressBar(Callback):
    """A bar on a terminal or in a notebook; in a log, a line for each evaluation. Use it in a `with` block."""

    def __init__(self) -> None:
        self._meter = Meter("training")
        self._scores: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.close()

    def on_fit_begin(self, run: Run) -> None:
        """Show how many rounds there are."""
        self._meter.begin(*_work(run))
        self._meter.log(f"training: {run.round:,} of {plural(run.rounds, 'round')} done")

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        """Show the scores."""
        self._show(run)
        self._scores = [f"loss {entry['loss']:.3g}", f"validation {entry['validation']:.4f}"]
        self._scores += [f"best {run.best_score:.4f}"] if run.best_score is not None else []
        place = [f"round {run.round:,}/{run.rounds:,}", f"epoch {entry['epoch']:.4g}"]
        time = [f"{duration(entry['train_seconds'])} of training", *self._meter.left]
        self._meter.log(*place, *self._scores, *time)

    def on_round_end(self, run: Run, loss: float) -> None:
        """Show the round."""
        self._show(run)

    def _show(self, run: Run) -> None:
        self._meter.update(*_work(run), f"round {run.round:,}/{run.rounds:,}", *self._scores)


def _work(run: Run) -> tuple[float, float]:
    """Return how much of the run is done, and all of it."""
    return work_of(run.schedule, run.round), work_of(run.schedule, run.rounds)


def work_of(schedule: Schedule, rounds: int) -> float:
    """Return the steps of all sub-GCNs in the first rounds; the time of a step is taken to be in proportion to 1/m."""
    work = 0.0
    for phase, steps in zip(schedule.phases, schedule.steps, strict=True):
        plan = schedule.plan(phase.start)
        taken = min(max(rounds - phase.start, 0) * plan.local_steps, steps)
        work += taken * plan.workers / (plan.sub_gcns or 1)
    return work
