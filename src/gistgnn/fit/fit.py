"""A run of `GIST.fit`: what is prepared before Algorithm 1, what happens between its rounds, and
what it returns.
"""

import logging
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from gistgnn.accounting.costs import Operations, memory_of, slice_bytes, state_bytes, theta_bytes
from gistgnn.accounting.coverage import coverage_of
from gistgnn.distributed import costs
from gistgnn.errors import DivergedError, RankLostError
from gistgnn.fit.callbacks import Notes, ProgressBar, Run, log_choices
from gistgnn.fit.identity import facts_of, fingerprint_of, require_same_training
from gistgnn.fit.prepare import Setup, make_sampler
from gistgnn.fit.result import Progress, Result
from gistgnn.fit.saving import Saver
from gistgnn.fit.scorer import Running, Scorer
from gistgnn.graphs.doubts import note_doubts, note_homophily
from gistgnn.graphs.named import GraphSizes
from gistgnn.runners.registry import make_runner
from gistgnn.schedule import Schedule
from gistgnn.storage.record import Evaluated, Sent
from gistgnn.training.loss import Criterion
from gistgnn.utils.console import spinner
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes, resident_bytes

log = logging.getLogger(__name__)

# of a round that has diverged, in which nodes without a finite output are looked for
MOST_BATCHES = 50


class Fit(Run):
    """A run of `GIST.fit`. In its `with` block Algorithm 1 takes rounds, and hands each to
    `after_round`.
    """

    def __init__(self, setup: Setup) -> None:
        arguments = setup.arguments
        self.gist = setup.gist
        self.gist.scaling = setup.scaling
        self.training = setup.training
        self.part = setup.part
        self.progress = Progress()
        self._setup = setup
        self._ranks = setup.gist.ranks
        before = resident_bytes(self.gist.device) - setup.graph.held_bytes
        self._bytes_before = max(before, 0)
        self._begun = time.perf_counter()
        self._round_begun = self._begun
        self._end = None if arguments.max_seconds is None else self._begun + arguments.max_seconds
        self._longest_round = 0.0  # seconds
        self._longest_evaluation = 0.0  # seconds
        self._callbacks: list[Any] = [*arguments.callbacks]
        if not setup.part:
            self._callbacks.insert(0, Notes(setup))
        self._saver: Saver | None = None
        self._before: Progress | None = None  # the progress before the round that is being recorded
        self.runner = make_runner(arguments.runner)
        if setup.variant.runner:
            self.runner = setup.variant.runner()
        keep_freed_memory()
        self._fingerprint = fingerprint_of(setup)
        if self._ranks.leads and not setup.part:
            note_doubts(setup.graph)
            if type(setup.gist.full_spec.on_meta()).__name__ in ("GCN", "GAT", "GATv2"):
                note_homophily(setup.graph)
        if self._ranks.count > 1:
            require_same_training(setup, self._fingerprint)
        shows = arguments.progress and not setup.part
        with (
            self.seconds("prepare"),
            spinner("preparing the run", shown=True) if shows else nullcontext(),
        ):
            self._prepare()

    def _prepare(self) -> None:
        """Make the batches, the rounds, Θ, and what scores it; try the model, the loss and the
        metric on a batch.
        """
        setup = self._setup
        gist = self.gist
        graph = setup.graph
        saving = setup.arguments.saving
        setup.require_step_fits()
        self.sampler = setup.sampler or make_sampler(
            gist, graph, setup.sampling, setup.arguments.inductive
        )
        self._operations = Operations(
            gist.full_spec,
            gist.partition,
            GraphSizes(graph.num_nodes, graph.num_edges, int(graph.train.sum())),
            setup.sampling,
            setup.arguments.evaluation,
            inductive=setup.arguments.inductive,
        )
        self.schedule = Schedule(
            self.training, self.sampler.steps_per_epoch, gist.workers, self._operations
        )
        resumed = saving is not None and self._ranks.lead(lambda: saving.resumes)
        gist.begin_run(averages=setup.averages, resumed=resumed, init=setup.init)
        self._running = Running(gist.theta, gist.trained_spec)
        classes = None if setup.any_outputs else graph.num_classes
        with closing(self.sampler.batches(0, 1)) as batches:
            first = next(batches)
            evaluation = partial(setup.arguments.evaluation.prepare, seed=gist.seed)
            self._scorer = Scorer(self._running, graph, setup.metric, evaluation, first, classes)
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
            self._call("on_fit_begin")
            # it was killed before it recorded the last round
            if self.gist.theta.place.round > self.progress.rounds:
                self.after_round({"loss": self.gist.theta.place.loss})
            self.gist.next_round = self.progress.rounds
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what is being written; after an error save the state, and give the error the
        result so far.
        """
        try:
            if isinstance(error, DivergedError):
                self._explain(error)
                error.result = self._result()
                error.result.diverged = str(error)
            elif error is not None and not isinstance(error, RankLostError):
                self._save_after(error)
        finally:
            self._open.close()

    def _explain(self, error: DivergedError) -> None:
        """Say so if the loss is not finite because the model never has a finite output for some
        nodes.
        """
        if self._ranks.count > 1:
            return
        with suppress(Exception):  # the error that is raised is the other one
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
        alone = self._ranks.count == 1
        # else other ranks would have to write their shares
        writes = alone or (self._ranks.leads and theta.shards == 1)
        if not theta.place.round or not writes:
            return
        if self._saver:
            with self.seconds("save"):
                recorded = self._before or self.progress
                pending = theta.place.round > recorded.rounds
                error.add_note(self._saver.save_after_error(recorded, pending=pending))
        # that of a part is none of the whole run
        if isinstance(error, Exception) and alone and not self._setup.part:
            with suppress(Exception):  # such as one more MemoryError
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
            means: what its sub-GCNs measured, by name, as `Round.aggregate` returns it.
        """
        self._before = self.progress.copy()  # until the round is recorded; see `_save_after`
        progress = self.progress
        patience = self.training.patience
        now = time.perf_counter()
        loss = means.get("loss", 0.0)
        progress.train_seconds += now - self._round_begun
        progress.steps += self.schedule.steps_of(progress.rounds).count * self.gist.workers
        progress.rounds += 1
        epoch = self.schedule.epochs_after(progress.rounds)
        times = {"round": progress.rounds, "epoch": epoch, "train_seconds": progress.train_seconds}
        progress.add_round({**times, "loss": loss, **means})
        if self._saver:
            self._saver.round_is_over(progress.rounds)
        finished = progress.rounds >= self.schedule.rounds
        self._longest_round = max(self._longest_round, now - self._round_begun)
        # for one more round and its evaluation
        needed = self._longest_round + 2 * self._evaluation_seconds
        late = self._end is not None and self._ranks.any(now + needed > self._end) and not finished
        if self.schedule.is_scored_after(progress.rounds) or late:
            self._evaluate(loss)
        self._call("on_round_end", loss)
        stopped, interrupted = map(
            any, zip(*self._ranks.gather([self.stopped, self.interrupted]), strict=True)
        )
        progress.stopped_by = None
        if late:
            progress.stopped_by = "max_seconds"
        elif (
            patience is not None
            and progress.scores.evaluations_since_best >= patience
            and not finished
        ):
            progress.stopped_by = "patience"
        elif stopped and not finished:
            progress.stopped_by = "callback"
        if progress.stopped_early and not progress.history:
            self._evaluate(loss)
        self.interrupted = interrupted and not finished
        self._before = None
        if self._saver:
            with self.seconds("save"):
                self._saver.save(progress, last=self.is_over, over=not self.interrupted)
        self._round_begun = time.perf_counter()

    @property
    def _evaluation_seconds(self) -> float:
        """The seconds of an evaluation; before the first one those of the steps that take about as
        long.
        """
        if self.progress.history:
            return self._longest_evaluation
        seconds_per_step = self.progress.train_seconds / max(self.progress.steps, 1)
        return self._operations.evaluation_in_steps * seconds_per_step

    def end(self) -> Result:
        result = self._result()
        try:
            self._call("on_fit_end", result)
        except Exception as error:
            if not self._setup.part:
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
        carried = 0  # bytes of the moments that travel with the sub-GCNs
        if self.training.keeps_moments and gist.sub_gcns > 1:
            carried = state_bytes(gist.full_spec, sizes, self.training)
        sent = costs(theta, sum(slices) + carried, workers, local_steps)
        return Result(
            model=gist.with_scaling(self._running.best()),
            **facts_of(setup, self._fingerprint),
            **progress.entries(),
            interrupted=self.interrupted,
            peak_memory_bytes=peak_memory_bytes(gist.device),
            evaluation=self._scorer.description,
            communication=gist.theta.exchange.communication(gist.theta.place, theta, local_steps),
            inference_seconds=statistics.median(passes) if passes else None,
            traffic=Sent(workers=workers, **setup.variant.traffic(sent)),
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

    def _call(self, hook: str, *given: Any) -> None:
        for callback in self._callbacks:
            if callable(own := getattr(callback, hook, None)):
                own(self, *given)

    def _evaluate(self, loss: float) -> None:
        progress = self.progress
        scores = progress.scores
        metric = self._setup.metric
        begun = time.perf_counter()
        steps = self.schedule.steps_of(progress.rounds - 1)
        with self.seconds("evaluate"):
            scores.last = self._scorer()
            score = scores.last["validation"][metric.name]
            is_better = scores.add(score, metric)
            # As long as there is no score, the latest model counts.
            if is_better or scores.best_score is None:
                scores.best = scores.last
                scores.best_round = progress.rounds
                scores.classes = self._scorer.classes
                scores.temperature = self._scorer.temperature
                self.gist.theta.place.keep_best()
            entry = Evaluated(
                round=progress.rounds,
                epoch=self.schedule.epochs_after(progress.rounds),
                step=steps.first + steps.count,
                loss=loss,
                lr=steps.rate(self.training, steps.count - 1),
                validation=score,
                test=scores.last.get("test", {}).get(metric.name),
                train_seconds=progress.train_seconds,
            )
            if self.training.metric is not None:
                entry["metric"] = metric.name
            progress.history.append(dict(entry))
            self._longest_evaluation = max(self._longest_evaluation, time.perf_counter() - begun)
            # a copy: what a callback writes into it is no history
            self._call("on_evaluation", dict(entry))

    def _restore(self, saver: Saver) -> None:
        prepared = self.progress
        if (progress := saver.begin()) is None:
            return
        self.progress = progress
        progress.seconds["prepare"] = (
            progress.seconds.get("prepare", 0.0) + prepared.seconds["prepare"]
        )
        if progress.stopped_by == "max_seconds":  # a resumed run has more time
            progress.stopped_by = None
