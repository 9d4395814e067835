"""A run of `GIST.fit`: what happens before Algorithm 1, between its rounds, and after it."""

import logging
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from gistgnn.accounting.costs import memory_of, slice_bytes, state_bytes, theta_bytes
from gistgnn.accounting.coverage import coverage_of
from gistgnn.distributed import costs
from gistgnn.errors import DivergedError, RankLostError
from gistgnn.fit.callbacks import ProgressBar, Run
from gistgnn.fit.identity import facts_of, fingerprint_of, require_same_training
from gistgnn.fit.notes import log_choices, note_outcome, note_untrained_parameters
from gistgnn.fit.prepare import Setup, make_sampler
from gistgnn.fit.result import Progress, Result
from gistgnn.fit.saving import Saver
from gistgnn.fit.scorer import Scorer
from gistgnn.graphs.doubts import note_doubts, note_homophily
from gistgnn.runners.registry import Runner, make_runner
from gistgnn.schedule import Schedule
from gistgnn.storage.record import Evaluated, Sent
from gistgnn.training.loss import Criterion
from gistgnn.utils.console import spinner
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes, resident_bytes

log = logging.getLogger(__name__)

# Nodes without a finite output are looked for in so many batches of a round that has diverged.
MOST_BATCHES = 50


class Fit(Run):
    """A run of `GIST.fit`.

    In its `with` block Algorithm 1 takes rounds, and hands each to `after_round`.

    Args:
        setup: what is trained, on what, and how.
        runner: what trains the sub-GCNs of a round. Defaults to the runner that the setup names.

    Attributes:
        runner: what trains the sub-GCNs of a round.
        sampler: has the batches.
        training: the settings as runners use them.
    """

    def __init__(self, setup: Setup, runner: Runner | None = None) -> None:
        arguments = setup.arguments
        self.gist = setup.gist
        self.gist.scaling = setup.scaling
        self.training = setup.training
        self.part = setup.part
        self.progress = Progress()
        self._setup = setup
        self._ranks = setup.gist.ranks
        bytes_before = resident_bytes(self.gist.device) - setup.graph.held_bytes
        self._bytes_before = max(bytes_before, 0)
        self._round_begun = time.perf_counter()
        self._deadline: float | None = None
        if arguments.max_seconds is not None:
            self._deadline = self._round_begun + arguments.max_seconds
        # In seconds, of those in this process. 0 before the first one.
        self._longest_round = 0.0
        self._longest_evaluation = 0.0
        self._callbacks: list[Any] = [*arguments.callbacks]
        self._saver: Saver | None = None
        # The progress before the round that is being recorded; None between two rounds.
        self._progress_before: Progress | None = None
        self.runner = runner or make_runner(arguments.runner)
        keep_freed_memory()
        self._fingerprint = fingerprint_of(setup)
        if self._ranks.leads and not self.part:
            note_doubts(setup.graph)
            if type(setup.gist.full_spec.on_meta()).__name__ in ("GCN", "GAT", "GATv2"):
                note_homophily(setup.graph)
        if self._ranks.count > 1:
            require_same_training(setup, self._fingerprint)
        shows = arguments.progress and not self.part
        with (
            self.seconds("prepare"),
            spinner("preparing the run", shown=True) if shows else nullcontext(),
        ):
            self._prepare()

    def _prepare(self) -> None:
        """Make the batches, the rounds, Θ and its scorer.

        The model, the loss and the metric are tried on the first batch.
        """
        setup = self._setup
        gist = self.gist
        graph = setup.graph
        saving = setup.arguments.saving
        setup.require_step_fits()
        self.sampler = setup.sampler or make_sampler(
            gist, graph, setup.sampling, setup.arguments.inductive
        )
        self._operations = setup.count_operations()
        self.schedule = Schedule(
            self.training, self.sampler.steps_per_epoch, gist.workers, self._operations
        )
        resumed = saving is not None and self._ranks.lead(lambda: saving.resumes)
        gist.begin_run(averages=setup.averages, resumed=resumed, init=setup.init)
        with closing(self.sampler.batches(0, 1)) as batches:
            first = next(batches)
            self._scorer = Scorer(setup, first)
        log_choices(setup, self.schedule, self.sampler, self._scorer.description)
        if setup.any_outputs:
            return
        loss = self.training.loss
        if isinstance(loss, Criterion) and first.loss_nodes.numel():
            loss.check(graph.num_classes, first.y[first.loss_nodes], first.loss_weights)

    def __enter__(self) -> "Fit":
        """Stand at the round to begin with, and tell the callbacks."""
        with ExitStack() as stack:
            if self._setup.arguments.progress:
                bar = stack.enter_context(closing(ProgressBar(self._setup.part)))
                self._callbacks.append(bar)
            if self._setup.arguments.saving:
                self._saver = Saver(
                    self.gist.theta, self._ranks, self._setup.arguments.saving, self._fingerprint
                )
                stack.callback(self._saver.close)
                self._restore(self._saver)
            self._round_begun = time.perf_counter()
            if not self.part:
                note_untrained_parameters(self)
            self._call("on_fit_begin")
            # An earlier process was killed before it had recorded the last round in Θ.
            if self.gist.theta.place.round > self.progress.rounds:
                self.after_round({"loss": self.gist.theta.place.loss})
            self.gist.next_round = self.progress.rounds
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until files are written.

        After an error the state is saved, and the error gets the result so far.
        """
        try:
            if isinstance(error, DivergedError):
                self._explain(error)
                error.result = self._result()
                error.result.diverged = str(error)
            elif error is not None and not isinstance(error, RankLostError):
                self._save_after(error)
        finally:
            self._exit_stack.close()

    def _explain(self, error: DivergedError) -> None:
        """Name the nodes for which even an untrained model has no finite output, if any."""
        if self._ranks.count > 1:
            return
        with suppress(Exception):  # An error of this search must not hide the first one.
            gist = self.gist
            widths = gist.layout.widths(map(len, gist.blocks(0)[0]))
            untrained = replace(gist.full_spec, widths=widths).from_seed().to(gist.device)
            steps = self.schedule.steps_of(error.round_number)
            with closing(
                self.sampler.batches(steps.first, min(steps.count, MOST_BATCHES))
            ) as batches:
                nodes = self._scorer.nodes_without_output(untrained, batches)
            if nodes:
                error.blame_nodes(nodes)

    def _save_after(self, error: BaseException) -> None:
        """Save the state after the last round that is in Θ, and give an error the result so far."""
        theta = self.gist.theta
        is_single = self._ranks.count == 1
        # After an error, other ranks no longer write their shares of a checkpoint.
        can_save = is_single or (self._ranks.leads and theta.shards == 1)
        if not theta.place.round or not can_save:
            return
        if self._saver:
            with self.seconds("save"):
                recorded = self._progress_before or self.progress
                pending = theta.place.round > recorded.rounds
                error.add_note(self._saver.save_after_error(recorded, pending=pending))
        # The result of a part says nothing of the run that joins the parts.
        if isinstance(error, Exception) and is_single and not self.part:
            with suppress(Exception):  # It may be one more MemoryError.
                result = self._result()
                result.interrupted = True
                error.result = result  # type: ignore[attr-defined]
                error.add_note("the result so far is the error's attribute `result`")

    @property
    def is_over(self) -> bool:
        """Whether no round is left, or the run has been stopped."""
        return (
            self.progress.rounds >= self.schedule.rounds
            or self.progress.stopped_early
            or self.interrupted
        )

    @contextmanager
    def seconds(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity, also where the block raises an error."""
        # "prepare" (clusters, first batch), "take" (subGCNs), "train" (subTrain with its batches),
        # "merge" (subAgg), "evaluate" (scores) or "save" (checkpoints).
        begun = time.perf_counter()
        try:
            yield
        finally:
            seconds = self.progress.seconds
            seconds[activity] = seconds.get(activity, 0.0) + time.perf_counter() - begun

    def after_round(self, means: Mapping[str, float]) -> None:
        """Record a finished round: score the model, tell the callbacks, save the state.

        Args:
            means: the numbers of the round by name, such as "loss", as `Round.aggregate` returns
                them.
        """
        progress = self.progress
        # An error before the round is recorded saves this state; see `_save_after`.
        self._progress_before = progress.copy()
        loss = means.get("loss", 0.0)
        now = time.perf_counter()
        self._count_round({"loss": loss, **means}, now - self._round_begun)
        if self._saver:
            self._saver.round_is_over(progress.rounds)
        is_last = progress.rounds >= self.schedule.rounds
        is_late = self._is_late(now) and not is_last
        if self.schedule.is_scored_after(progress.rounds) or is_late:
            self._evaluate(loss)
        self._call("on_round_end", loss)
        requests = self._ranks.gather([self.stopped, self.interrupted])
        is_stopped = any(stopped for stopped, _ in requests)
        is_interrupted = any(interrupted for _, interrupted in requests)
        progress.stopped_by = None if is_last else self._reason_to_stop(is_late, is_stopped)
        if progress.stopped_early and not progress.history:
            self._evaluate(loss)
        self.interrupted = is_interrupted and not is_last
        self._progress_before = None
        if self._saver:
            with self.seconds("save"):
                self._saver.save(progress, last=self.is_over, over=not self.interrupted)
        self._round_begun = time.perf_counter()

    def _count_round(self, numbers: Mapping[str, float], seconds: float) -> None:
        """Add a finished round, its numbers and its time to the progress."""
        progress = self.progress
        progress.train_seconds += seconds
        progress.steps += self.schedule.steps_of(progress.rounds).count * self.gist.workers
        progress.rounds += 1
        epoch = self.schedule.epochs_after(progress.rounds)
        times = {"round": progress.rounds, "epoch": epoch, "train_seconds": progress.train_seconds}
        progress.add_round({**times, **numbers})
        self._longest_round = max(self._longest_round, seconds)

    def _is_late(self, now: float) -> bool:
        """Whether the time of the run is too short for one more round, on any rank."""
        if self._deadline is None:
            return False
        # One more round, the evaluation after this round, and one more.
        needed = self._longest_round + 2 * self._evaluation_seconds
        return self._ranks.any(now + needed > self._deadline)

    def _reason_to_stop(self, is_late: bool, is_stopped: bool) -> str | None:
        """Return what ends the run before its last round, or None if it goes on."""
        if is_late:
            return "max_seconds"
        if self.progress.scores.is_out_of_patience(self.training.patience):
            return "patience"
        return "callback" if is_stopped else None

    @property
    def _evaluation_seconds(self) -> float:
        """The seconds of an evaluation, or an estimate from those of steps.

        A resumed process has not measured one either.
        """
        if self._longest_evaluation:
            return self._longest_evaluation
        seconds_per_step = self.progress.train_seconds / max(self.progress.steps, 1)
        return self._operations.evaluation_in_steps * seconds_per_step

    def end(self) -> Result:
        """Return the result, after the callbacks have been told of it."""
        result = self._result()
        try:
            if not self.part:
                note_outcome(self, self._setup)
            self._call("on_fit_end", result)
        except Exception as error:
            if not self.part:
                error.result = result  # type: ignore[attr-defined]
                error.add_note("the run is over, and its result is the error's attribute `result`")
            raise
        return result

    def _result(self) -> Result:
        gist = self.gist
        setup = self._setup
        progress = self.progress
        passes = self._scorer.passes
        last_round = max(progress.rounds - 1, 0)
        sizes = gist.partition.sizes(last_round)
        theta = theta_bytes(gist.trained_spec)
        slices = slice_bytes(gist.full_spec, sizes)
        workers = gist.workers
        local_steps = self.schedule.local_steps
        carried = 0  # The bytes of the moments that travel with the sub-GCNs.
        if self.training.keeps_moments and gist.sub_gcns > 1:
            carried = state_bytes(gist.full_spec, sizes, self.training)
        sent = costs(theta, sum(slices) + carried, workers, local_steps)
        return Result(
            model=gist.with_scaling(gist.theta.full_model(gist.trained_spec, best=True)),
            **facts_of(setup, self._fingerprint),
            **progress.entries(),
            interrupted=self.interrupted,
            peak_memory_bytes=peak_memory_bytes(gist.device),
            evaluation=self._scorer.description,
            communication=gist.theta.exchange.communication(gist.theta.place, theta, local_steps),
            inference_seconds=statistics.median(passes) if passes else None,
            traffic=Sent(workers=workers, **gist.bytes_sent(sent)),
            memory={
                "process": self._bytes_before,
                **memory_of(gist, setup.graph, self.training, theta, slices),
            },
            partition=gist.partition.describe(last_round),
            coverage=coverage_of(gist.full_spec, gist.partition, progress.rounds),
            batches=self.sampler.facts,
            budget=None,
            local_steps=local_steps,
        )

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, hook, None)
            if callable(method):
                method(self, *arguments)

    def _evaluate(self, loss: float) -> None:
        """Score Θ, keep it if it is the best so far, and add an entry to the history."""
        progress = self.progress
        scores = progress.scores
        metric = self._setup.metric
        begun = time.perf_counter()
        with self.seconds("evaluate"):
            scores.last = self._scorer()
            score = scores.last["validation"][metric.name]
            is_better = scores.add(score, metric, progress.rounds)
            # As long as no evaluation had a score, the latest model counts as the best.
            if is_better or scores.best_score is None:
                scores.best_round = progress.rounds
                scores.best = scores.last
                scores.classes = self._scorer.classes
                scores.temperature = self._scorer.temperature
                self.gist.theta.place.keep_best()
            entry = self._entry_of_evaluation(loss)
            progress.history.append(dict(entry))
            self._longest_evaluation = max(self._longest_evaluation, time.perf_counter() - begun)
            # Callbacks get a copy, so that they cannot change the history.
            self._call("on_evaluation", dict(entry))

    def _entry_of_evaluation(self, loss: float) -> Evaluated:
        """Return the entry of the history for the last evaluation."""
        progress = self.progress
        last = progress.scores.last
        metric = self._setup.metric
        steps = self.schedule.steps_of(progress.rounds - 1)
        entry = Evaluated(
            round=progress.rounds,
            epoch=self.schedule.epochs_after(progress.rounds),
            step=steps.first + steps.count,
            loss=loss,
            lr=steps.rate(self.training, steps.count - 1),
            validation=last["validation"][metric.name],
            test=last.get("test", {}).get(metric.name),
            train_seconds=progress.train_seconds,
        )
        if self.training.metric is not None:
            entry["metric"] = metric.name
        return entry

    def _restore(self, saver: Saver) -> None:
        """Go on from the newest checkpoint, if the run is resumed and there is one."""
        progress = saver.begin()
        if progress is None:
            return
        progress.add_seconds(self.progress)  # Those of preparing the run in this process.
        self.progress = progress
        if progress.stopped_by == "max_seconds":  # A resumed run has the same time again.
            progress.stopped_by = None
