"""A run of `GIST.fit`: what is prepared before Algorithm 1, watched between its rounds, and returned after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from gistgnn.accounting.coverage import coverage_of, partition_of
from gistgnn.accounting.footprint import memory_of, require_step_fits, slice_bytes, theta_bytes
from gistgnn.errors import DivergedError, InputError
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.runners.runner import Runner
from gistgnn.sampling import describe
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.session.agreement import require_same_training
from gistgnn.session.budget import Clock, choose
from gistgnn.session.callbacks import check_callbacks
from gistgnn.session.monitor import Monitor, Stopwatch, TimeLimit
from gistgnn.session.objective import any_outputs, as_graph, for_task, metric_of, try_objective, with_criterion
from gistgnn.session.options import Options, describe_graph, describe_settings, make_sampler, operations_of
from gistgnn.session.progress_bar import ProgressBar
from gistgnn.session.result import Result
from gistgnn.session.saving import Saver, Saving
from gistgnn.session.scorer import Running, Scorer
from gistgnn.settings import Training
from gistgnn.storage.checkpoints import Checkpoints, run_id
from gistgnn.theta.model_spec import checksum_of, values_of
from gistgnn.training.optimizer import check_optimizer
from gistgnn.utils.console import spinner
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes

if TYPE_CHECKING:
    from torch_geometric.data import Data


log = logging.getLogger(__name__)

MOST_UNTRAINED = 0.03  # share of the parameters


class Session:
    """A run of `GIST.fit`; within its `with` block Algorithm 1 runs.

    Args:
        trainer: `GIST`, or one of `gistgnn.baselines`; graph, training and options are the arguments of its `fit`.
        runner: trains the sub-GCNs of a round.
        scorer: makes what scores Θ between rounds.
        traffic: returns the bytes that a worker sends, of the settings, the bytes of Θ and those of every sub-GCN.

    Attributes:
        sampler: the batches.
        runner: trains the sub-GCNs of a round.
        schedule: the rounds.
        seconds: adds up the seconds of every activity.
        finished: the run that was resumed had come to its end.
    """

    def __init__(
        self,
        trainer: GlobalModel,
        graph: Graph | Data,
        training: Training,
        options: Options,
        runner: Runner,
        scorer: type[Scorer],
        traffic: Callable[[Training, int, Sequence[int]], dict[str, float]],
    ) -> None:
        self._begun = time.perf_counter()
        self._trainer, self._given, self._training, self._options = trainer, training, training, options
        self._clock: Clock | None = None  # of a budget
        self._limit = TimeLimit(options.max_seconds, self._begun, budget=training.budget is not None)
        check_callbacks(options.callbacks)
        self.runner, self._scorer_kind, self._traffic = runner, scorer, traffic
        keep_freed_memory()
        # torch loads seconds of code at the first optimiser
        check_optimizer(training.optimizer, training.lr, training.weight_decay, training.momentum)
        self._init = None if options.init is None else self._initial(options.init)
        given = trainer.ranks.together(lambda: as_graph(graph, training))
        require_same_training(trainer, given, training, options, self._init)
        self._graph = given.to(trainer.device)
        self._given = training = for_task(training, self._graph, trainer)
        self._training, self._metric = with_criterion(training, self._graph), metric_of(training, self._graph)

    def __enter__(self) -> Session:
        """Prepare the batches and the evaluation; stand at the round to begin with."""
        trainer, options, saving = self._trainer, self._options, self._options.saving
        preparing = Stopwatch()
        with preparing("prepare"):
            self._require_step_fits()
            self.sampler = make_sampler(
                trainer, self._graph, options.sampler, options.inductive, shown=options.progress
            )
            chosen = self._choose() if self._given.budget else None
            self._operations = operations_of(trainer, self._graph, options)
            self.schedule = self._make_schedule()
            begins, resumed = self.schedule.plan(0), saving is not None and saving.resumes
            trainer._begin_run(self._training, begins, resumed=resumed, init=self._init)
            self._running = Running(trainer.theta, trainer._spec)
            any_number = any_outputs(self._given)
            how = (self._running, self._graph, options.evaluation, self._metric)
            self._scorer = self._scorer_kind(trainer.theta, *how, any_outputs=any_number)
            with closing(self.sampler.batches(0, 1)) as batches:
                first = next(batches)
                self._scorer.prepare(first, trainer.seed, shown=options.progress)
            if not any_number:
                try_objective(self._training, self._metric, self._graph, first)
        with ExitStack() as stack:
            bar = [stack.enter_context(ProgressBar())] if options.progress else []
            self._monitor = self._make_monitor(preparing, [*bar, *options.callbacks])
            stack.callback(self._monitor.close)
            self.seconds = self._monitor.seconds
            self._monitor.progress.chosen = chosen
            self.finished = self._resume()
            self._warn_of_untrained()
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is being written; give a `DivergedError` the result so far."""
        try:
            if isinstance(error, DivergedError):
                error.result = self.result()
                error.result.diverged = str(error)
        finally:
            self._open.close()

    def after_round(self, plan: RoundPlan, loss: float) -> bool:
        """Record a round; True ends the run."""
        if self._clock:
            plan = self._keep_to_budget(self._clock, plan)
        return self._monitor.after_round(plan, loss)

    def result(self) -> Result:
        """The result of the run as far as it has come."""
        trainer, progress = self._trainer, self._monitor.progress
        plan = self.schedule.plan(max(progress.rounds - 1, 0))
        partition = trainer._partition_of(plan)
        blocks = partition.blocks(plan.draw)
        theta = theta_bytes(trainer._spec)
        slices = slice_bytes(trainer._full_spec, partition.sizes(plan.draw))
        place = trainer.store.place
        return Result(
            self._running.best(),
            progress,
            self._monitor.interrupted,
            peak_memory_bytes(trainer.device),
            self._scorer.description,
            trainer.theta.communication(plan.local_steps),
            self._scorer.seconds,
            {"workers": trainer.workers, **self._traffic(plan.training, theta, slices)},
            memory_of(self._graph, plan.training, place, trainer.device, trainer.ranks, theta, slices),
            partition_of(partition, blocks),
            coverage_of(trainer._full_spec, trainer.partition, self.schedule.draws(progress.rounds)),
            progress.chosen,
            self.schedule.local_steps,
            self._metric.as_dict(),
            describe_settings(trainer, self._graph, self._given, self._options),
            describe_graph(self._graph),
            run_id(self._identity(self._options.saving)),
        )

    def _require_step_fits(self) -> None:
        """Refuse a run whose widest sub-GCN takes more memory in one step than is free; a budget chooses what fits."""
        trainer, graph, options = self._trainer, self._graph, self._options
        if self._training.budget:
            return
        fewest = min((phase.sub_gcns for phase in self._training.phases), default=trainer.partition.sub_gcns)
        nodes = 0  # a sampler's batch may be of any size
        if options.sampler is None:
            nodes = int(graph.train.sum()) if options.inductive else graph.num_nodes
        require_step_fits(trainer._full_spec, trainer.partition.split_into(fewest), trainer.input_axis, nodes)

    def fit_is_over(self, result: Result) -> None:
        """Tell the callbacks that the run is over."""
        self._monitor.call("on_fit_end", result)

    def _initial(self, given: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the values that Θ begins with."""
        if self._given.cross_weights == "zero" or self._given.budget:
            setting = "a budget" if self._given.budget else "cross_weights='zero'"
            raise InputError(f"init is given beside {setting}, which begins with narrow models: leave one out")
        if not self._trainer._merges:
            raise InputError(f"init is given, but the method is {self._trainer.method}: use gist")
        return values_of(given, self._trainer._full_spec)

    def _choose(self) -> dict[str, Any]:
        """Choose the settings of a run with a budget, or read those that an interrupted run has chosen."""
        trainer, ranks, saving, budget = self._trainer, self._trainer.ranks, self._options.saving, self._given.budget
        assert budget is not None
        saved = ranks.lead(lambda: Checkpoints(saving.path).newest_state() if saving and saving.resumes else None)
        used = sum(saved.get("seconds", {}).values()) if saved else 0.0
        left = max(budget - used - (time.perf_counter() - self._begun), 0.0)
        chosen: dict[str, Any] | None = saved and saved.get("chosen")
        if chosen is None:
            with spinner("choosing settings for the budget", shown=self._options.progress):
                chosen = ranks.lead(lambda: choose(trainer, self.sampler, self._training, left).as_dict())
            log.info("%s", chosen["reason"])
        self._training = self._training.like(chosen["training"])
        self._clock = Clock(max(budget - used - (time.perf_counter() - self._begun), 0.0))
        return chosen

    def _keep_to_budget(self, clock: Clock, plan: RoundPlan) -> RoundPlan:
        """Adjust the phases to the time that is left; return the plan of the round that has ended anew."""
        steps, progress = self.sampler.steps_per_epoch, self._monitor.progress
        adjusted = self._trainer.ranks.lead(
            lambda: clock.adjusted(self._training, plan, self.schedule, steps).as_dict()
        )
        self._training = self._training.like(adjusted)
        self.schedule = self._monitor.run.schedule = self._make_schedule()
        assert progress.chosen is not None
        progress.chosen["training"] = adjusted
        return self.schedule.plan(progress.rounds)

    def _make_schedule(self) -> Schedule:
        return Schedule(self._training, self.sampler.steps_per_epoch, self._trainer.workers, self._operations)

    def _warn_of_untrained(self) -> None:
        trainer, schedule = self._trainer, self.schedule
        zero = self._training.cross_weights == "zero"  # then nothing untrained is in the model
        if zero or not trainer._merges or not trainer.ranks.leads or self.finished:
            return
        counts = coverage_of(trainer._full_spec, trainer.partition, schedule.draws(schedule.rounds))["counts"]
        if (share := counts.get("0", 0.0)) > MOST_UNTRAINED:
            log.warning(
                "%.1f %% of the parameters will never be trained: they lie between blocks in %s; raise "
                "epochs, lower local_steps, or end with a phase of one sub-GCN",
                100 * share,
                "the only round" if schedule.rounds == 1 else f"all {schedule.rounds:,} rounds",
            )

    def _make_monitor(self, preparing: Stopwatch, callbacks: Sequence[Any]) -> Monitor:
        trainer, saving = self._trainer, self._options.saving
        saver = Saver(trainer.theta, trainer.ranks, saving, self._identity(saving)) if saving else None
        schedule, limit = self.schedule, self._limit
        return Monitor(trainer, self._scorer, self._training, schedule, callbacks, saver, preparing, limit)

    def _resume(self) -> bool:
        """Stand at the round after the last one of a resumed run, and tell the callbacks; True if the run has ended."""
        trainer, monitor = self._trainer, self._monitor
        progress = monitor.progress
        monitor.call("on_fit_begin")
        finished = progress.stopped_early
        if trainer.theta.round > progress.rounds:  # it was killed before it could record the last round
            finished = monitor.after_round(self.schedule.plan(progress.rounds), trainer.theta.loss)
        trainer.next_round = progress.rounds
        return finished

    def _identity(self, saving: Saving | None) -> dict[str, Any]:
        """Describe the run, so that its checkpoint is not taken for another run's."""
        trainer, graph, options = self._trainer, self._graph, self._options
        return {
            **(saving.config if saving else {}),
            **{key: value for key, value in self._given.as_dict().items() if key != "budget"},
            "widths": trainer.widths,
            "sub_gcns": trainer.partition.sub_gcns,
            "partition": trainer.partition.kind,
            "whole": sorted(trainer.partition.whole),
            "input_axis": trainer.input_axis,
            "seed": trainer.seed,
            "graph": [graph.name, graph.num_nodes, graph.num_edges, graph.num_features, graph.checksum()],
            "parameters": {name: list(shape) for name, shape in trainer.theta.shapes.items()},
            "sampler": describe(options.sampler),
            "inductive": options.inductive,
            "evaluation": options.evaluation.approximation,
            **({} if self._init is None else {"init": checksum_of(self._init)}),
            **({} if trainer.method == "gist" else {"method": trainer.method, "workers": trainer.workers}),
        }
