"""Callbacks of `GIST.fit`: objects that are told how a run goes on, and may end it."""

import logging
from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import nn

from gistgnn.errors import InputError, reason
from gistgnn.fit.result import Progress, Result
from gistgnn.global_model import GlobalModel
from gistgnn.schedule import Schedule
from gistgnn.utils.console import Meter
from gistgnn.utils.formats import duration, plural

log = logging.getLogger(__name__)


class Run:
    """A run of `GIST.fit` as its callbacks see it; `gist` is the `GIST` that trains."""

    gist: GlobalModel
    schedule: Schedule
    progress: Progress
    part: str = ""  # In words, which narrow model it trains of a run that joins several.
    stopped: bool = False  # Whether a callback has called `stop`.
    interrupted: bool = False  # Whether a callback has called `interrupt`.

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return self.schedule.rounds

    @property
    def round(self) -> int:
        """How many rounds are over."""
        return self.progress.rounds

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry for each evaluation so far; see `Result.history`."""
        return self.progress.history

    @property
    def best_score(self) -> float | None:
        """The best validation score so far; None before the first evaluation."""
        return self.progress.best_score

    def model(self) -> nn.Module:
        """Return the full model as it is now.

        It is a copy, so do not ask for it after every round of a wide model.
        """
        return self.gist.model()

    def stop(self) -> None:
        """End the run after this round.

        The result is the best model so far; the run counts as finished.
        """
        self.stopped = True

    def interrupt(self) -> None:
        """Save the state and end the run after this round.

        With `Saving(..., resume=True)` it goes on later.
        """
        self.interrupted = True


class Callback:
    """A base class for callbacks: override the methods that you need.

    With ranks, every rank calls its own callbacks, and `stop` or `interrupt` on one rank ends the
    run on all.
    """

    def on_fit_begin(self, run: Run) -> None:
        """Called once, before the first round.

        If the run is resumed, `run.history` has its earlier entries.
        """

    def on_round_end(self, run: Run, loss: float) -> None:
        """Called after every round, and after its evaluation if it has one.

        `loss` is the mean over the steps of the round.
        """

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        """Called after every evaluation, with its entry of the history.

        It is not called for the earlier entries of a resumed run.
        """

    def on_fit_end(self, run: Run, result: Result) -> None:
        """Called once, with the result; not after an error."""


class InterruptWhen(Callback):
    """Interrupts a run at the end of the round after which `asked()` is True."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked

    def on_round_end(self, run: Run, loss: float) -> None:
        if self._asked():
            run.interrupt()


class Log(Callback):
    """Writes every entry of the history to a logger; of several ranks, the first one writes.

    Example:
        >>> GIST(build, 512).fit(graph, callbacks=[Log(wandb.init(project="mine"))])

    A run that is resumed writes its earlier entries too, but not those before `logger.step`, if the
    logger has that. Where a run trains several narrow models, the steps of each follow those of the
    one before: loggers drop entries that go back. A logger that fails is not used again: a note
    says so, and training goes on.

    Args:
        logger: an object with `log(dict)` or `log(dict, step=)`, such as a run of Weights & Biases
            or of trackio; or such a function, as `mlflow.log_metrics` is one.
    """

    def __init__(self, logger: Any) -> None:
        if not callable(getattr(logger, "log", logger)):
            raise InputError(
                f"logger is a {type(logger).__name__}, expected a function, or an object with `log`"
            )
        self._logger = logger
        self._failed = False
        self._steps_before = 0  # The steps of the narrow models that were trained before this one.
        self._last_step = 0  # The step of the last entry that was written.

    def on_fit_begin(self, run: Run) -> None:
        written = getattr(self._logger, "step", 0)
        if run.part:
            self._steps_before = self._last_step
            if isinstance(written, int) and written > self._last_step:
                # An earlier process has written entries of this narrow model, which goes on.
                steps_of_model = run.history[-1]["step"] if run.history else 0
                self._steps_before = written - 1 - steps_of_model
                return
        for entry in run.history:
            if not isinstance(written, int) or entry["step"] >= written:
                self.on_evaluation(run, entry)

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        if run.gist.ranks.leads:
            self.attempt(lambda: self._write(entry))

    def _write(self, entry: dict[str, Any]) -> None:
        """Give the logger the numbers of an entry, with the step of all narrow models together."""
        write = getattr(self._logger, "log", self._logger)
        numbers = {name: value for name, value in entry.items() if isinstance(value, (int, float))}
        numbers["step"] += self._steps_before
        self._last_step = int(numbers["step"])
        if "step" in signature(write).parameters:
            step = numbers.pop("step")
            write(numbers, step=step)
        else:
            write(numbers)

    def attempt(self, work: Callable[[], None]) -> None:
        """Do something with the logger, unless it has failed before.

        It may raise any error, as without a network.
        """
        try:
            if not self._failed:
                work()
        except Exception as error:
            self._failed = True
            log.warning(
                "the logger has failed, and training goes on without it (%s)", reason(error)
            )


class ProgressBar(Callback):
    """A bar on a terminal; in a log, a line for each evaluation, and one at least every 30 s.

    `close` ends it.

    Args:
        part: which narrow model of a run it shows, in words. Empty for a run by itself.
    """

    def __init__(self, part: str = "") -> None:
        self._title = f"training {part}".rstrip()
        self._prefix = f"{part}, " if part else ""
        self._meter = Meter(self._title)
        self._validation = list[str]()
        self.close = self._meter.close

    def on_fit_begin(self, run: Run) -> None:
        self._meter.begin(run.round, run.rounds, self._describe_round(run))
        self._meter.log(f"{self._title}: {run.round:,} of {plural(run.rounds, 'round')} done")

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        score = "-" if entry["validation"] is None else f"{entry['validation']:.4f}"
        self._validation = [f"validation {score}"]
        if run.best_score is not None:
            self._validation.append(f"best {run.best_score:.4f}")
        self.on_round_end(run, entry["loss"])
        self._meter.log(
            f"round {run.round:,}/{run.rounds:,}",
            f"epoch {entry['epoch']:.4g}",
            f"loss {entry['loss']:.3g}",
            *self._validation,
            f"{duration(entry['train_seconds'])} of training",
        )

    def on_round_end(self, run: Run, loss: float) -> None:
        texts = [self._describe_round(run), f"loss {loss:.3g}", *self._validation]
        self._meter.update(run.round, run.rounds, *texts)

    def _describe_round(self, run: Run) -> str:
        return f"{self._prefix}round {run.round:,}/{run.rounds:,}"
