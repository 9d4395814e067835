"""What a run of `GIST.fit` is given, checked; the graph, the batches, the loss and the metric that follow from it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.accounting.costs import slice_bytes, too_large
from gistgnn.distributed import Costs
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.fit.saving import Saving
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph, Standardisation, from_hetero
from gistgnn.graphs.features import sample_of
from gistgnn.layout.instance import small_instance
from gistgnn.nn.scaling import saved_state
from gistgnn.runners.registry import Runner
from gistgnn.sampling import FullGraph, Sampler, Sampling, chosen_sampling, training_subgraph, whole_graph
from gistgnn.settings import Training
from gistgnn.theta.model_spec import values_of
from gistgnn.training.loss import make_criterion, task_of
from gistgnn.training.metric import NAMED, as_metric
from gistgnn.training.names import NAMES, named_as
from gistgnn.training.optimizer import check_optimizer, check_schedule, update_rule
from gistgnn.utils.checks import LONGEST, check_flag, check_kind, check_number
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.random_streams import Stream

log = logging.getLogger(__name__)

HOOKS = ("on_fit_begin", "on_round_end", "on_evaluation", "on_fit_end")  # of a callback


@dataclass(frozen=True)
class Variant:
    """How a run of a baseline differs from a run of GIST."""

    merges: bool = True  # the sub-GCNs are merged in every round, so that Θ may begin with a trained model
    independent: bool = False  # every worker has batches of its own; a run without a sampler is refused
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `Training`, which the method fixes
    runner: Callable[[], Runner] | None = None  # makes what trains every round; None: the runner that the user names
    # The bytes that a worker sends, as result.json holds them.
    traffic: Callable[[Costs], dict[str, float]] = lambda costs: {"bytes_per_round": costs.gist}


@dataclass
class Setup:
    """The arguments of `GIST.fit`, checked, and what follows from them and the graph; for the arguments see there."""

    gist: GlobalModel
    graph: Any  # as the user gave it; then a `Graph` on the device that trains
    given: Training  # as records hold them
    variant: Variant
    sampling: Sampling | None
    runner: str
    inductive: bool
    evaluation: Evaluation
    progress: bool
    callbacks: Sequence[object]
    saving: Saving | None
    init: Any  # a model or its tensors; then the values that Θ begins with; None: the seed decides them
    max_seconds: float | None
    standardise: Standardisation | bool | None  # how the caller has scaled the features, or whether to do so
    part: str = ""  # which narrow model it trains of a run that joins several, in words; "": it is a run by itself
    sampler: Sampler | None = None  # whose batches it takes; None: it makes them of the graph
    scaling: Standardisation | None = None  # of the features; None: they are as they were given

    def __post_init__(self) -> None:
        self._check()
        gist, variant = self.gist, self.variant
        training = replace(self.given, **variant.settings)
        imported = training.imported()
        if training.optimizer not in NAMES["optimizer"]:
            check_optimizer(imported, gist.full_spec.on_meta())
        check_schedule(imported)
        if gist.width_scaling is not None and update_rule(imported) is None and not self.part:
            log.warning(
                "the learning rates do not follow the widths: a step of the optimizer %s is neither proportional to "
                "the gradient nor independent of its scale, entry by entry",
                named_as(training.optimizer),
            )
        if variant.independent:
            self.sampling = independent(self.sampling, gist.method)
        graph = gist.ranks.load(partial(self._load, training))
        if self.init is not None:
            self.init = _initial_values(gist, variant, training, self.init)
        self.graph = graph = graph.to(gist.device)
        self.sampling = chosen_sampling(self.sampling, graph.num_nodes)
        several = gist.method == "gist" and gist.workers > 1 and gist.partition.split
        self.averages = bool(graph.regression and several)  # the full model is the mean of its sub-GCNs
        if self.averages:
            # The full model's output is the sum of m outputs, each of which has learned the target. The largest class
            # stays the largest; a number becomes m times as large.
            log.info("the targets are numbers, so the full model is the mean of its sub-GCNs, not their sum")
        loss = make_criterion(
            training.loss,
            graph.y[graph.train],
            graph.num_classes,
            class_weights=training.class_weights,
            label_smoothing=training.label_smoothing,
            regression=graph.regression,
        )
        self.given = training
        # What runners use: the loss is a `Criterion`, or None for the plain cross-entropy.
        self.training = replace(training.imported(), loss=loss, class_weights=None, label_smoothing=0.0)
        labels = graph.multi_label and graph.num_classes > 1
        usual = "r2" if graph.regression else "f1_micro" if labels else "accuracy"
        self.metric = NAMED[usual] if training.metric is None else as_metric(training.metric)  # selects the model
        # The model may have any number of outputs where loss and metric are the user's own.
        self.any_outputs = callable(training.loss) and callable(training.metric)

    def _check(self) -> None:
        """Refuse arguments of a wrong type, or out of range, or that do not go together."""
        check_flag("inductive", self.inductive)
        check_flag("progress", self.progress)
        check_kind("standardise", self.standardise, (bool, Standardisation), "True, False or None", none=True)
        check_kind("evaluation", self.evaluation, Evaluation, "an Evaluation, such as Evaluation('layers'), or None")
        check_kind("saving", self.saving, Saving, "a Saving, such as Saving('checkpoints')", none=True)
        if not isinstance(self.callbacks, (list, tuple)):
            raise InputError(f"callbacks is a {type(self.callbacks).__name__}, expected a list: write callbacks=[...]")
        for place, callback in enumerate(self.callbacks):
            if isinstance(callback, type):
                raise InputError(f"callbacks[{place}] is the class {callback.__name__}, expected an object: add ()")
            if not any(callable(getattr(callback, hook, None)) for hook in HOOKS):
                raise InputError(f"callbacks[{place}] is a {type(callback).__name__} without {' or '.join(HOOKS)}")
        if (seconds := self.max_seconds) is not None:
            self.max_seconds = check_number("max_seconds", seconds, above=True, below=LONGEST)
            if self.given.budget is not None:
                raise InputError(f"max_seconds is {seconds:g}, but a budget limits the time as well: leave one out")
        if self.given.budget is not None and self.gist.method != "gist":
            raise InputError(f"budget is given, but the method is {self.gist.method}: use gist")

    def _load(self, training: Training) -> Graph:
        """Return the graph to train on: a PyG one converted, with scaled features unless the caller has done so."""
        graph = self.graph
        if type(graph).__name__ == "HeteroData":
            if self.inductive:
                raise InputError("inductive is True, but the training nodes of a HeteroData are of one type: leave it")
            wanted = self.standardise if isinstance(self.standardise, bool) else None
            graph = from_hetero(graph, standardise=wanted)
        if not isinstance(graph, Graph):
            graph = Graph.from_pyg(graph, regression=_is_regression(getattr(graph, "y", None), training))
        graph = _as_the_loss_says(graph, training, self.gist)
        for name in ("train", "val"):
            if not getattr(graph, name).any():
                raise InputError(f"{graph.name} has no {name} nodes: to train, give some to both of train and val")
        if isinstance(self.standardise, Standardisation):
            self.scaling = self.standardise
            return graph
        init = saved_state(self.init) if isinstance(self.init, (nn.Module, Mapping)) else None
        wanted = self.standardise
        if wanted is None and init is None and _looks_up(self.gist.full_spec.on_meta(), graph.x):
            log.warning("the features stay as they are, as the model has an nn.Embedding: standardise=True scales them")
            wanted = False
        self.scaling = Standardisation.choose(wanted, graph, init)
        return self.scaling.graph(graph) if self.scaling else graph

    def require_step_fits(self) -> None:
        """Refuse a run whose widest sub-GCN takes more memory in one step than is free; a budget chooses what fits."""
        gist, graph, partition, spec = self.gist, self.graph, self.gist.partition, self.gist.full_spec
        if self.training.budget:
            return
        nodes = 0  # a sampler's batch may be of any size
        if self.sampling is None:
            nodes = int(graph.train.sum()) if self.inductive else graph.num_nodes
        counts = partition.sizes(0)[0]
        features = sum(counts) - (0 if gist.input_axis is None else counts[gist.input_axis])  # the input is there
        needed, there = slice_bytes(spec, [counts])[0] + 4 * nodes * features, available_bytes(gist.device)
        if needed > there:
            what = f"a step of one sub-GCN computes {features:,} features of {nodes:,} nodes, which"
            raise too_large(what, needed, gist.device, there, "make the widths smaller, or raise sub_gcns")


def _looks_up(model: nn.Module, x: Tensor) -> bool:
    """Whether the model has a table of vectors, and x a column of whole numbers, which may be places in it."""
    if x.layout is not torch.strided:
        return False
    has_table = any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in model.modules())
    return has_table and bool((sample_of(x) % 1 == 0).all(dim=0).any())


def _is_regression(y: Any, training: Training) -> bool:
    """Whether a PyG `Data` has numbers to be predicted: the loss says so, or is the user's own and they are floats."""
    if (task := task_of(training.loss)) is not None or training.loss is None:
        return task == "numbers"
    return isinstance(y, Tensor) and y.is_floating_point() and not bool(((y == 0) | (y == 1) | y.isnan()).all())


def _as_the_loss_says(graph: Graph, training: Training, gist: GlobalModel) -> Graph:
    """Return a graph with classes or labels as the numbers of a regression, or as one label, if the loss says so."""
    task = task_of(training.loss)
    if task == "numbers" and not graph.regression:
        targets = graph.y.reshape(graph.num_nodes, -1).float()
        return replace(graph, y=targets, num_classes=targets.shape[1], class_names=(), regression=True)
    # Two classes and one output are one decision, as in plain torch; its label is the larger class.
    any_outputs = task is None and (training.loss is None or callable(training.metric))
    two_classes = not (graph.regression or graph.multi_label) and graph.num_classes == 2
    if two_classes and task != "classes" and not any_outputs and _outputs(gist) == 1:
        return replace(graph, y=graph.y.clamp(min=0).float()[:, None], num_classes=1, class_names=())
    return graph


def _outputs(gist: GlobalModel) -> int:
    """Return how many outputs the model has, by running a small one."""
    with Stream(0, "outputs"):  # the user's random stream does not move
        small = small_instance(gist.build, gist.layout, gist.shared, gist.input_axis, 0)
    return small.reference.shape[1]


def make_sampler(gist: GlobalModel, graph: Graph, sampling: Sampling | None, inductive: bool) -> Sampler:
    """Make the batches of a run from a graph on the device of `gist`."""
    batch = training_subgraph(graph) if inductive else whole_graph(graph)
    if sampling is None:
        return FullGraph(batch)
    layers = getattr(gist.full_spec.on_meta(), "num_layers", None)  # our models and PyG's have it
    return sampling.sampler(batch, gist.seed, layers)


def independent(sampling: Sampling | None, method: str) -> Sampling:
    """Return the same sampling with independent batches: with shared ones all workers would learn the same."""
    if sampling is None:
        raise InputError(f"{method} gives each worker its own batches, but the sampler is full: use clusters")
    return replace(sampling, batches="independent")


def _initial_values(
    gist: GlobalModel, variant: Variant, training: Training, given: nn.Module | Mapping[str, Tensor]
) -> dict[str, Tensor]:
    if training.budget:
        raise InputError("init is given beside a budget, which begins with narrow models: leave one out")
    if not variant.merges:
        raise InputError(f"init is given, but the method is {gist.method}: use gist")
    return values_of(given, gist.full_spec)
