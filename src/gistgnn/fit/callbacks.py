"""Callbacks of `GIST.fit`: objects that are told how a run goes on, and may end it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import msgspec
from torch import nn

from gistgnn.accounting.coverage import never_trained
from gistgnn.errors import InputError, reason
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Progress, Result
from gistgnn.global_model import GlobalModel
from gistgnn.sampling import Sampler
from gistgnn.sampling.clusters import WHOLE_GRAPH
from gistgnn.schedule import Schedule
from gistgnn.settings import LONGEST_ROUND, ROUNDS_PER_SUB_GCN, SHORTEST_ROUND
from gistgnn.training.metric import Metric
from gistgnn.training.names import named_as
from gistgnn.utils.console import Meter
from gistgnn.utils.formats import duration, plural

log = logging.getLogger(__name__)

# A note says how many parameters stay untrained if they are more than this share.
MOST_UNTRAINED = 0.03
# A run was too short if the last 20 % of its rounds improved the score by more than 2 %.
LATE = 0.2
RISING = 0.02
# A run was too long if its best round lies in the first half, with 5 scores or more after it, and
# if these took 10 seconds or more: below that, to run it again saves nothing.
EARLY = 0.5
MANY_LATER = 5
WORTH_SAVING = 10.0


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
        if run.part and isinstance(written, int) and written > self._last_step:
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
        write = getattr(self._logger, "log", self._logger)
        numbers = {name: value for name, value in entry.items() if isinstance(value, (int, float))}
        numbers["step"] += self._steps_before
        self._last_step = int(numbers["step"])
        takes_step = "step" in signature(write).parameters
        write(numbers, **({"step": numbers.pop("step")} if takes_step else {}))

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
        self._place = f"{part}, " if part else ""
        self._meter = Meter(self._title)
        self._validation = list[str]()
        self.close = self._meter.close

    def on_fit_begin(self, run: Run) -> None:
        rounds = f"{self._place}round {run.round:,}/{run.rounds:,}"
        self._meter.begin(run.round, run.rounds, rounds)
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
        rounds = f"{self._place}round {run.round:,}/{run.rounds:,}"
        self._meter.update(run.round, run.rounds, rounds, f"loss {loss:.3g}", *self._validation)


def log_choices(
    setup: Setup, schedule: Schedule, sampler: Sampler, evaluation: Mapping[str, Any]
) -> None:
    """Log what a run does, and why, where its settings may leave it open; `--verbose` shows it.

    Args:
        setup: of the run.
        schedule: its rounds.
        sampler: its batches.
        evaluation: how it is scored, as result.json holds it.
    """
    training = setup.training
    nodes = plural(setup.graph.num_nodes, "node")
    if setup.sampling is None:
        batches = f"the whole graph of {nodes} in every step; by default of up to {WHOLE_GRAPH:,}"
    else:
        batches = f"by {setup.sampling.name}"
        facts = {} if sampler.facts is None else msgspec.structs.asdict(sampler.facts)
        measured = {name: value for name, value in facts.items() if value is not None}
        for name, value in measured.items():
            batches += f", {name.replace('_', ' ')} {value:.4g}"
    log.debug("batches: %s", batches)
    if setup.scaling is None:
        log.debug("features: as they are, as words are by default: few in a row, none negative")
    else:
        log.debug("features: scaled to mean 0 and deviation 1 over the training nodes")
    steps = plural(schedule.local_steps, "step")
    limits = f"{SHORTEST_ROUND} to {LONGEST_ROUND} by default, with {ROUNDS_PER_SUB_GCN} m rounds"
    log.debug("rounds: %s of %s (ζ: %s)", f"{schedule.rounds:,}", steps, limits)
    log.debug(
        "training: %g epochs of %s, m = %d; learning rate %g, %s; loss %s",
        training.all_epochs, plural(sampler.steps_per_epoch, "step"), setup.gist.workers,
        training.first_lr, named_as(setup.settings.schedule),
        "cross-entropy" if training.loss is None else getattr(training.loss, "name", "own"),
    )  # fmt: skip
    log.debug(
        "scores: %s after every %s, by default in up to a tenth of the time; evaluation %s",
        setup.metric.name, plural(schedule.evaluate_every, "round").removeprefix("1 "),
        evaluation.get("method"),
    )  # fmt: skip


def note_untrained_parameters(run: Run) -> None:
    """Log before a run how many parameters its rounds will leave untrained, if they are many."""
    gist = run.gist
    rounds = run.schedule.rounds
    if not gist.ranks.leads or run.progress.rounds >= rounds:
        return
    share = never_trained(gist.full_spec, gist.partition, rounds)
    if share > MOST_UNTRAINED:
        log.warning(
            "%.1f %% of the parameters will never be trained: they lie between blocks in %s; "
            "raise --epochs or lower --local-steps",
            100 * share,
            "the only round" if rounds == 1 else f"all {rounds:,} rounds",
        )


def note_outcome(run: Run, setup: Setup) -> None:
    """Log after a run what would have made it better: more or fewer rounds, or class weights."""
    gist = run.gist
    progress = run.progress
    if not gist.ranks.leads:
        return
    if progress.stopped_early:
        share = never_trained(gist.full_spec, gist.partition, progress.rounds)
        if share > MOST_UNTRAINED:
            log.warning(
                "%.1f %% of the parameters have never been trained: the run has ended after %s of "
                "%s rounds, by %s",
                100 * share, f"{progress.rounds:,}", f"{run.schedule.rounds:,}",
                progress.stopped_by,
            )  # fmt: skip
    elif not run.interrupted:
        _note_length(progress, setup.metric)
    note_missed_classes(progress, setup.graph.class_names)


def _note_length(progress: Progress, metric: Metric) -> None:
    """Log it if a run that has come to its end was much too short, or much too long."""
    scored = [entry for entry in progress.history if entry["validation"] is not None]
    before = [
        entry["validation"] for entry in scored if entry["round"] <= (1 - LATE) * progress.rounds
    ]
    if before and progress.best_round == progress.rounds:
        best = (max if metric.higher_is_better else min)(before)
        last = scored[-1]["validation"]
        if abs(last - best) > RISING * abs(last):
            log.info(
                "the score was still getting better: %s of the validation nodes was %.4g before "
                "the last fifth of the run, and is %.4g: train longer, by more epochs or a budget",
                metric.name, best, last,
            )  # fmt: skip
    later = [entry for entry in scored if entry["round"] > progress.best_round]
    if len(later) >= MANY_LATER and progress.best_round <= EARLY * progress.rounds:
        seconds_after = progress.train_seconds - scored[-len(later) - 1]["train_seconds"]
        if seconds_after < WORTH_SAVING:
            return
        log.info(
            "the best round was %s of %s, and those after it took %s: train for fewer epochs, "
            "or end by patience=%d (--patience %d)",
            f"{progress.best_round:,}", f"{progress.rounds:,}",
            duration(seconds_after), MANY_LATER, MANY_LATER,
        )  # fmt: skip


def note_missed_classes(progress: Progress, class_names: Sequence[str]) -> None:
    """Log which classes the best model of a run never predicts, if there are some."""
    classes = progress.scores.classes
    nodes = [scores["nodes"] for scores in classes]
    missed = [
        number for number, scores in enumerate(classes) if scores["nodes"] and not scores["f1"]
    ]
    if not missed:
        return
    share = 100 * sum(nodes[number] for number in missed) / sum(nodes)
    which = ", ".join(class_names[number] if class_names else str(number) for number in missed[:5])
    which = f"class{'es' * (len(missed) > 1)} {which}" + ", ..." * (len(missed) > 5)
    log.warning(
        "no node of %s is found (%.1f %% of the nodes scored): train longer, or give class_weights="
        '"balanced" and metric="f1_macro" (--class-weights balanced --metric f1_macro)',
        which,
        share,
    )
