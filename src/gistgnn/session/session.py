"""One run on a graph: what is prepared before Algorithm 1, watched between its rounds, and returned after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gistgnn.accounting.coverage import coverage_of, partition_of
from gistgnn.accounting.footprint import memory_of
from gistgnn.accounting.phases import Phases
from gistgnn.distributed import Machine
from gistgnn.errors import DivergedError
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import selection_metric
from gistgnn.graphs import Graph
from gistgnn.runners import Schedule
from gistgnn.sampling import FullGraph, Sampler, Sampling, describe, training_subgraph, whole_graph
from gistgnn.session.monitor import Hooks, Monitor
from gistgnn.session.result import Result
from gistgnn.session.saving import Saving
from gistgnn.session.scorer import Scorer
from gistgnn.settings import Training
from gistgnn.theta import Running, build_on_meta
from gistgnn.utils.console import RoundBar, spinner
from gistgnn.utils.process_memory import keep_freed_memory, peak_memory_bytes

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from gistgnn.gist import GIST

Algorithm = Callable[..., None]  # `gistgnn.gist.train`


@dataclass(frozen=True)
class Options:
    """The arguments of `GIST.fit` that are not settings of training; see there."""

    sampler: Sampling | None
    runner: str
    inductive: bool
    evaluation: Evaluation
    progress: bool
    report: Callable[[dict[str, Any]], None]
    advance: Callable[[int, int], None]
    stop: Callable[[], bool]
    saving: Saving | None


class Fit:
    """A run of `GIST.fit`.

    Args:
        gist: what trains, of this class or of one of `gistgnn.baselines`.
        graph: see `GIST.fit`.
        options: likewise.
        training: likewise.
    """

    def __init__(self, gist: GIST, graph: Graph | Data, options: Options, training: Training) -> None:
        self._gist, self._options, self._training = gist, options, training
        gist.runner(options.runner)  # refuses an unknown one before anything is loaded
        keep_freed_memory()
        training.make_optimizer([nn.Parameter(torch.zeros(1))])  # torch loads seconds of code at the first one
        self._graph = (graph if isinstance(graph, Graph) else Graph.from_pyg(graph)).to(gist.device)

    def run(self, algorithm: Algorithm) -> Result:
        """Prepare the run, go through Algorithm 1, and return what it gives."""
        gist, options, training, saving = self._gist, self._options, self._training, self._options.saving
        phases = Phases()
        with phases("prepare"):
            seen = self._sampler()
            gist.begin(going_on=saving is not None and saving.goes_on)
            running = Running(gist.theta, gist.what())
            scorer = gist.scorer(running, self._graph, options.evaluation)
            with closing(seen.batches(0, 1)) as first:
                scorer.prepare(next(first), gist.seed, shown=options.progress)
        plan = Schedule(training, seen.steps_per_epoch, gist.workers)
        with RoundBar(plan.rounds, shown=options.progress) as bar:
            monitor = self._monitor(scorer, bar, plan.rounds, phases)
            stopped = _take_up(gist, monitor, plan)
            try:
                if not stopped:
                    runner = gist.runner(options.runner)
                    algorithm(gist, seen, training, runner, monitor.after_round, monitor.phases)
            except DivergedError as error:
                error.result = self._result(monitor, running)
                raise
            finally:
                monitor.close()
        return self._result(monitor, running)

    def _sampler(self) -> Sampler:
        """The batches; what they are cut out of lies once in a machine's memory."""
        gist, options = self._gist, self._options
        share = Machine(gist.ranks).share
        batch = training_subgraph(self._graph, share) if options.inductive else whole_graph(self._graph)
        if options.sampler is None:
            return FullGraph(batch)
        model = build_on_meta(gist.build, gist.widths, shared=gist.shared)
        layers = getattr(model, "num_layers", None)  # of ours and PyG's
        with spinner("preparing batches", shown=options.progress):
            return options.sampler.sampler(batch, gist.seed, share, layers)

    def _monitor(self, scorer: Scorer, bar: RoundBar, rounds: int, phases: Phases) -> Monitor:
        gist, options = self._gist, self._options

        def advance(done: int) -> None:
            bar.advance(done)
            options.advance(done, rounds)

        def report(entry: dict[str, Any]) -> None:
            bar.update(entry)
            options.report(entry)

        hooks = Hooks(advance, report, options.stop, options.saving)
        chooses = selection_metric(self._graph)
        return Monitor(gist.theta, scorer, chooses, self._training, gist.workers, hooks, self._identity(), phases)

    def _identity(self) -> dict[str, Any]:
        """Say what is trained on what, and how, so that its checkpoint is not taken for another's."""
        gist, graph, options = self._gist, self._graph, self._options
        return {
            **(options.saving.config if options.saving else {}),
            **asdict(self._training),
            "widths": gist.widths,
            "sub_gcns": gist.sub_gcns,
            "partition": gist.partition.kind,
            "whole": sorted(gist.partition.whole),
            "input_axis": gist.input_axis,
            "seed": gist.seed,
            "graph": [graph.name, graph.num_nodes, graph.num_edges, graph.num_features, graph.checksum()],
            "parameters": {name: list(shape) for name, shape in gist.theta.shapes.items()},
            "sampler": describe(options.sampler),
            "inductive": options.inductive,
            "evaluation": options.evaluation.approximation,
            **({} if gist.method == "gist" else {"method": gist.method, "workers": gist.workers}),
        }

    def _result(self, monitor: Monitor, running: Running) -> Result:
        gist, rounds = self._gist, monitor.progress.rounds
        moved = gist.theta.communication(self._training.local_steps)
        return Result(
            running.best(),
            monitor.progress,
            monitor.interrupted,
            peak_memory_bytes(gist.device),
            monitor.scorer.description,
            moved,
            monitor.scorer.seconds,
            {"workers": gist.workers, **gist.traffic(self._training)},
            memory_of(gist, self._graph, self._training),
            partition_of(gist),
            coverage_of(gist, rounds),
        )


def _take_up(gist: GIST, monitor: Monitor, plan: Schedule) -> bool:
    """Stand at the round after the last one of a resumed run, and show that; return True where it had stopped."""
    progress, hooks = monitor.progress, monitor.hooks
    for entry in progress.history:
        hooks.report(entry)
    hooks.advance(progress.rounds)
    stopped = progress.stopped_early
    if gist.theta.round > progress.rounds:  # it was killed before it could record the last round
        stopped = monitor.after_round(plan.stretch(progress.rounds), gist.theta.loss)
    gist.next_round = progress.rounds
    return stopped
