"""The progress of a run on standard error: rounds, scores and the time that is left."""

from typing import Any, Self

from gistgnn.fit.callbacks import Callback, Run
from gistgnn.utils.formats import duration, plural
from gistgnn.utils.progress import Meter


class ProgressBar(Callback):
    """A bar on a terminal; in a log, a line for each evaluation. Use it in a `with` block."""

    def __init__(self) -> None:
        self._meter = Meter("training")
        self._scores: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.close()

    def on_fit_begin(self, run: Run) -> None:
        """Show how many rounds there are."""
        self._meter.begin(run.round, run.rounds)
        self._meter.log(f"training: {run.round:,} of {plural(run.rounds, 'round')} done")

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        """Show the scores."""
        self.on_round_end(run, entry["loss"])
        self._scores = [f"loss {entry['loss']:.3g}", f"validation {entry['validation']:.4f}"]
        self._scores += [f"best {run.best_score:.4f}"] if run.best_score is not None else []
        place = [f"round {run.round:,}/{run.rounds:,}", f"epoch {entry['epoch']:.4g}"]
        self._meter.log(*place, *self._scores, f"{duration(entry['train_seconds'])} of training")

    def on_round_end(self, run: Run, loss: float) -> None:
        """Show the round."""
        self._meter.update(run.round, run.rounds, f"round {run.round:,}/{run.rounds:,}", *self._scores)
