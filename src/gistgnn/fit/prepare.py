"""What a run of `GIST.fit` is given, checked; the graph, the batches, the loss and the metric that follow from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gistgnn.accounting.costs import Operations, require_step_fits
from gistgnn.distributed import Costs
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import selection_metric
from gistgnn.fit.callbacks import check_callbacks
from gistgnn.fit.saving import Saving
from gistgnn.fit.scorer import Scorer
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.phases import Phase
from gistgnn.runners.registry import Runner
from gistgnn.sampling import Batch, FullGraph, Sampler, Sampling, describe, training_subgraph, whole_graph
from gistgnn.schedule import check_phases, refuse_phases
from gistgnn.settings import Training
from gistgnn.theta.model_spec import checksum_of, values_of
from gistgnn.training.loss import Criterion, make_criterion
from gistgnn.training.metric import NAMED, as_metric
from gistgnn.training.optimizer import check_optimizer
from gistgnn.utils.checks import LONGEST, check_flag, check_kind, check_number

if TYPE_CHECKING:
    from torch_geometric.data import Data

log = logging.getLogger(__name__)


def _slices_every_round(costs: Costs) -> dict[str, float]:
    return {"bytes_per_round": costs.gist}


@dataclass(frozen=True)
class Variant:
    """How a run of a baseline differs from a run of GIST.

    Args:
        phased: a run may have phases, and blocks that last.
        merges: the sub-GCNs are merged, so weights between blocks are meant to be trained.
        independent: every worker has batches of its own; a run without a sampler is refused.
        settings: the settings of `Training` that the method fixes, whatever the user says.
        runner: makes the runner that trains every round; None: the runner that the user names.
        scorer: makes what scores Θ between rounds.
        traffic: returns the bytes that a worker sends, as result.json holds them.
    """

    phased: bool = True
    merges: bool = True
    independent: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    runner: Callable[[], Runner] | None = None
    scorer: type[Scorer] = Scorer
    traffic: Callable[[Costs], dict[str, float]] = _slices_every_round


class Setup:
    """The arguments of `GIST.fit`, checked, and what follows from them and the graph; for the arguments see there.

    Args:
        gist: the model that trains.
        graph: as the user gave it.
        training: the settings of training.
        variant: how the method differs from GIST.
        runner: the name of the runner.

    Attributes:
        graph: on the device that trains.
        given: the settings as records hold them.
        training: the settings that runners use: the loss is a `Criterion`, or None for the plain cross-entropy.
        metric: the score that selects the best model.
        init: the values that Θ begins with; None: the seed decides them.

    Raises:
        InputError: a value is out of range, or does not fit the method, the graph or another value.
    """

    def __init__(
        self,
        gist: GlobalModel,
        graph: Graph | Data,
        training: Training,
        variant: Variant,
        *,
        sampling: Sampling | None,
        runner: str,
        inductive: bool,
        evaluation: Evaluation | None,
        progress: bool,
        callbacks: Sequence[object],
        saving: Saving | None,
        init: nn.Module | Mapping[str, Tensor] | None,
        max_seconds: float | None,
    ) -> None:
        check_flag("inductive", inductive)
        check_flag("progress", progress)
        check_kind("evaluation", evaluation, Evaluation, "an Evaluation, such as Evaluation('layers')", none=True)
        check_kind("saving", saving, Saving, "a Saving, such as Saving('checkpoints')", none=True)
        check_callbacks(callbacks)
        if max_seconds is not None:
            check_number("max_seconds", max_seconds, above=True, below=LONGEST)
            if training.budget is not None:
                raise InputError(f"max_seconds is {max_seconds:g}, but a budget limits the time as well: leave one out")
        training, self.sampling = _as_the_method_needs(gist, variant, training, sampling)
        check_optimizer(training.optimizer, training.lr, training.weight_decay, training.momentum)
        self.gist, self.variant, self.runner = gist, variant, runner
        self.inductive, self.evaluation = inductive, evaluation or Evaluation()
        self.progress, self.callbacks, self.saving, self.max_seconds = progress, callbacks, saving, max_seconds
        self.init = None if init is None else _initial_values(gist, variant, training, init)
        self.graph = gist.ranks.together(lambda: as_graph(graph, training)).to(gist.device)
        self.given = _for_task(training, self.graph, gist)
        loss = make_criterion(
            training.loss,
            self.graph.y[self.graph.train],
            self.graph.num_classes,
            class_weights=training.class_weights,
            label_smoothing=training.label_smoothing,
            regression=self.graph.regression,
        )
        self.training = replace(self.given, loss=loss, class_weights=None, label_smoothing=0.0)
        named = self.given.metric is None
        self.metric = NAMED[selection_metric(self.graph)] if named else as_metric(self.given.metric or "")

    @property
    def any_outputs(self) -> bool:
        """Whether the model may have any number of outputs: loss and metric are the user's own."""
        return callable(self.given.loss) and callable(self.given.metric)

    def require_step_fits(self) -> None:
        """Refuse a run whose widest sub-GCN takes more memory in one step than is free; a budget chooses what fits."""
        gist, graph = self.gist, self.graph
        if self.training.budget:
            return
        fewest = min((phase.sub_gcns for phase in self.training.phases), default=gist.partition.sub_gcns)
        nodes = 0  # a sampler's batch may be of any size
        if self.sampling is None:
            nodes = int(graph.train.sum()) if self.inductive else graph.num_nodes
        require_step_fits(gist._full_spec, gist.partition.split_into(fewest), gist.input_axis, nodes)

    def operations(self) -> Operations:
        """Count the computing of the run's steps and evaluations."""
        gist, graph = self.gist, self.graph
        sizes = GraphSizes(graph.num_nodes, graph.num_edges, int(graph.train.sum()))
        own = (gist._full_spec, gist.partition, sizes, self.sampling, self.evaluation)
        return Operations.of_run(*own, inductive=self.inductive)

    def try_objective(self, first: Batch) -> None:
        """Try the loss and the metric on random outputs, before anything is trained."""
        graph, loss = self.graph, self.training.loss
        if self.any_outputs:
            return
        if isinstance(loss, Criterion) and first.loss_nodes.numel():
            loss.check(graph.num_classes, first.y[first.loss_nodes], first.loss_weights)
        if self.training.metric is not None:
            for mask in (graph.val, graph.test):
                rng = torch.Generator().manual_seed(0)
                logits = torch.randn(int(mask.sum()), graph.num_classes, generator=rng).to(graph.y.device)
                self.metric(logits, graph.y[mask])

    def config(self) -> dict[str, Any]:
        """Return the entry "config" of result.json for a run from Python; the command line has its own."""
        gist, model = self.gist, type(self.gist._full_spec.on_meta()).__name__
        return {
            "dataset": self.graph.name,
            "model": {"name": model, "hidden": list(gist.widths), "shared": gist.shared, "own": True},
            "sub_gcns": gist.workers,
            "method": gist.method,
            "partition": gist.partition.kind,
            "seed": gist.seed,
            "device": str(gist.device),
            "training": self.given.as_dict(),
            "sampler": describe(self.sampling),
            "runner": self.runner,
            "inductive": self.inductive,
            "evaluation": {name: getattr(self.evaluation, name) for name in ("method", "memory", "parts", "sample")},
            "store": gist.store.kind,
        }

    def identity(self) -> dict[str, Any]:
        """Describe the run, so that its checkpoint is not taken for another run's."""
        gist, graph = self.gist, self.graph
        return {
            **(self.saving.config if self.saving else {}),
            **{key: value for key, value in self.given.as_dict().items() if key != "budget"},
            "widths": gist.widths,
            "sub_gcns": gist.partition.sub_gcns,
            "partition": gist.partition.kind,
            "whole": sorted(gist.partition.whole),
            "input_axis": gist.input_axis,
            "seed": gist.seed,
            "graph": [graph.name, graph.num_nodes, graph.num_edges, graph.num_features, graph.checksum()],
            "parameters": {name: list(shape) for name, shape in gist.theta.shapes.items()},
            "sampler": describe(self.sampling),
            "inductive": self.inductive,
            "evaluation": self.evaluation.approximation,
            **({} if self.init is None else {"init": checksum_of(self.init)}),
            **({} if gist.method == "gist" else {"method": gist.method, "workers": gist.workers}),
        }


def as_graph(graph: Graph | Data, training: Training) -> Graph:
    """Return the graph to train on.

    A PyG `Data` is one of a regression if its y are floating-point numbers that are not labels, and the loss is "mse",
    "l1", "huber" or a function.
    """
    if isinstance(graph, Graph):
        return graph
    return Graph.from_pyg(graph, regression=_predicts_numbers(graph, training))


def make_sampler(gist: GlobalModel, graph: Graph, sampling: Sampling | None, inductive: bool) -> Sampler:
    """Make the batches of a run from a graph on the device of `gist`; a machine's ranks share them in memory."""
    share = gist.ranks.share
    batch = training_subgraph(graph, share) if inductive else whole_graph(graph)
    if sampling is None:
        return FullGraph(batch)
    layers = getattr(gist._full_spec.on_meta(), "num_layers", None)  # our models and PyG's have it
    return sampling.sampler(batch, gist.seed, share, layers)


def independent(sampling: Sampling | None, method: str) -> Sampling:
    """Return the same sampling with independent batches: with shared ones all workers would learn the same.

    Raises:
        InputError: every step sees the whole graph.
    """
    if sampling is None:
        raise InputError(
            f"{method} gives each worker its own batches, but the sampler is full: choose another sampler, such as "
            "clusters or neighbor"
        )
    return replace(sampling, batches="independent")


def _as_the_method_needs(
    gist: GlobalModel, variant: Variant, training: Training, sampling: Sampling | None
) -> tuple[Training, Sampling | None]:
    """Refuse phases that do not fit the method, the widths, the partition or the ranks; return what the method uses."""
    if not variant.phased:
        refuse_phases(training, gist.method)
    check_phases(training.phases, gist.partition, gist.input_axis)
    if training.phases:
        gist.store.check_ranks(gist.ranks, max(phase.sub_gcns for phase in training.phases), "sub_gcns")
    training = replace(training, **variant.settings) if variant.settings else training
    return training, independent(sampling, gist.method) if variant.independent else sampling


def _initial_values(
    gist: GlobalModel, variant: Variant, training: Training, given: nn.Module | Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the values that Θ begins with."""
    if training.cross_weights == "zero" or training.budget:
        setting = "a budget" if training.budget else "cross_weights='zero'"
        raise InputError(f"init is given beside {setting}, which begins with narrow models: leave one out")
    if not variant.merges:
        raise InputError(f"init is given, but the method is {gist.method}: use gist")
    return values_of(given, gist._full_spec)


def _for_task(training: Training, graph: Graph, gist: GlobalModel) -> Training:
    """Return the settings that the graph's task needs: in a regression Θ is the mean of its sub-GCNs.

    In the paper's method the full model's output is the sum of m outputs, each of which has learned the target. The
    largest class stays the largest; a number becomes m times as large. One phase makes Θ the mean.
    """
    sums = gist.method == "gist" and gist.workers > 1 and bool(gist.partition.split)
    if not graph.regression or not sums or training.averages or training.budget:
        return training
    log.info("the targets are numbers, so the full model is the mean of its sub-GCNs, not their sum")
    return replace(training, phases=(Phase(gist.workers, training.epochs),))


def _predicts_numbers(data: Any, training: Training) -> bool:
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor) or not y.is_floating_point():
        return False
    return training.loss in ("mse", "l1", "huber") or (
        callable(training.loss) and not bool(((y == 0) | (y == 1)).all())
    )
