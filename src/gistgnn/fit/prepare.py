"""Check what `GIST.fit` is given, and prepare the graph, the loss and the metric of a run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.accounting.costs import Operations, slice_bytes, too_large
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.fit.saving import Saving
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph, Standardisation, from_hetero
from gistgnn.graphs.features import sample_of
from gistgnn.graphs.named import GraphSizes
from gistgnn.layout.instance import small_instance
from gistgnn.nn.scaling import saved_state
from gistgnn.runners.registry import RUNNERS
from gistgnn.sampling import (
    FromLoader,
    FullGraph,
    Sampler,
    Sampling,
    chosen_sampling,
    training_subgraph,
    whole_graph,
)
from gistgnn.sampling.loaders import BatchReader, LoaderBatches
from gistgnn.settings import Training
from gistgnn.theta.model_spec import values_of
from gistgnn.training.loss import make_criterion, task_of
from gistgnn.training.metric import NAMED, Metric, as_metric
from gistgnn.training.names import NAMES, is_users_own, named_as
from gistgnn.training.optimizer import check_optimizer, check_schedule, update_rule
from gistgnn.utils.checks import LONGEST, check_choice, check_flag, check_kind, check_number
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.random_streams import Stream

log = logging.getLogger(__name__)

HOOKS = ("on_fit_begin", "on_round_end", "on_evaluation", "on_fit_end")
"""The methods of a callback."""


@dataclass(frozen=True, kw_only=True)
class FitArguments:
    """The arguments of `GIST.fit` but for the graph and the settings of training; see there.

    The constructor checks types and ranges.

    Raises:
        InputError: a value is of a wrong type, or out of range.
    """

    sampling: Sampling | None = None  # Without one, every step sees the whole graph.
    runner: str = "auto"
    inductive: bool = False
    evaluation: Evaluation = field(default_factory=Evaluation)
    progress: bool = False
    callbacks: Sequence[object] = ()
    saving: Saving | None = None
    init: nn.Module | Mapping[str, Tensor] | None = None
    max_seconds: float | None = None
    # Whether to scale the features, or how the caller has scaled them.
    standardise: Standardisation | bool | None = None

    def __post_init__(self) -> None:
        check_choice("runner", self.runner, RUNNERS)
        check_flag("inductive", self.inductive)
        check_flag("progress", self.progress)
        check_kind(
            "standardise",
            self.standardise,
            (bool, Standardisation),
            "True, False or None",
            none=True,
        )
        check_kind(
            "evaluation",
            self.evaluation,
            Evaluation,
            "an Evaluation, such as Evaluation('layers'), or None",
        )
        check_kind(
            "saving", self.saving, Saving, "a Saving, such as Saving('checkpoints')", none=True
        )
        if not isinstance(self.callbacks, (list, tuple)):
            raise InputError(
                f"callbacks is a {type(self.callbacks).__name__}, expected a list: write "
                "callbacks=[...]"
            )
        for number, callback in enumerate(self.callbacks):
            if isinstance(callback, type):
                raise InputError(
                    f"callbacks[{number}] is the class {callback.__name__}, expected an object: "
                    "add ()"
                )
            if not any(callable(getattr(callback, hook, None)) for hook in HOOKS):
                raise InputError(
                    f"callbacks[{number}] is a {type(callback).__name__} without "
                    f"{' or '.join(HOOKS)}"
                )
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, above=True, below=LONGEST)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a run trains, on what, and how. `prepare` makes it; nothing changes it later.

    Attributes:
        gist: the model.
        arguments: of `fit`.
        settings: of training, as records hold them.
        graph: on the device that trains, with scaled features.
        scaling: of the features; None if they are as they were given.
        sampling: the settings of the sampler for this graph; None if every step sees the whole
            graph.
        init: the values with which Θ begins; None if the seed decides them.
        part: in words, which narrow model it trains of a run that joins several. Empty for a run
            by itself.
        sampler: has the batches. If it is None, the run makes one.
    """

    gist: GlobalModel
    arguments: FitArguments
    settings: Training
    graph: Graph
    scaling: Standardisation | None
    sampling: Sampling | None
    init: dict[str, Tensor] | None
    part: str = ""
    sampler: Sampler | None = None

    @cached_property
    def training(self) -> Training:
        """The settings as runners use them.

        The loss is a `Criterion`, or None for the plain cross-entropy.
        """
        graph = self.graph
        settings = self.settings
        loss = make_criterion(
            settings.loss,
            graph.y[graph.train],
            graph.num_classes,
            class_weights=settings.class_weights,
            label_smoothing=settings.label_smoothing,
            regression=graph.regression,
        )
        return replace(settings.imported(), loss=loss, class_weights=None, label_smoothing=0.0)

    @cached_property
    def metric(self) -> Metric:
        """The score that selects the best model."""
        if self.settings.metric is not None:
            return as_metric(self.settings.metric)
        if self.graph.regression:
            return NAMED["r2"]
        has_several_labels = self.graph.multi_label and self.graph.num_classes > 1
        return NAMED["f1_micro" if has_several_labels else "accuracy"]

    @property
    def any_outputs(self) -> bool:
        """Whether the model may have any number of outputs: loss and metric are the user's own."""
        return is_users_own(self.settings.loss) and is_users_own(self.settings.metric)

    @property
    def averages(self) -> bool:
        """Whether the full model is the mean of its sub-GCNs, not their sum.

        The sum is m outputs, each of which has learned the target. The largest class stays the
        largest; a number becomes m times as large.
        """
        gist = self.gist
        is_split = gist.method == "gist" and gist.workers > 1 and bool(gist.partition.split)
        return self.graph.regression and is_split

    def count_operations(self) -> Operations:
        """Return the multiply-adds of a step and of an evaluation."""
        graph = self.graph
        return Operations(
            self.gist.full_spec,
            self.gist.partition,
            GraphSizes(graph.num_nodes, graph.num_edges, int(graph.train.sum())),
            self.sampling,
            self.arguments.evaluation,
            inductive=self.arguments.inductive,
        )

    def require_step_fits(self) -> None:
        """Refuse a run whose widest sub-GCN takes more memory in one step than is free.

        A run with a budget is not refused, as it chooses a width that fits.
        """
        gist = self.gist
        graph = self.graph
        if self.settings.budget:
            return
        nodes = 0  # The batches of a sampler may be of any size.
        if self.sampling is None:
            nodes = int(graph.train.sum()) if self.arguments.inductive else graph.num_nodes
        counts = gist.partition.sizes(0)[0]
        features = sum(counts)
        if gist.input_axis is not None:  # The input features take no more memory.
            features -= counts[gist.input_axis]
        needed = slice_bytes(gist.full_spec, [counts])[0] + 4 * nodes * features
        available = available_bytes(gist.device)
        if needed > available:
            raise too_large(
                f"a step of one sub-GCN computes {features:,} features of {nodes:,} nodes, which",
                needed,
                gist.device,
                available,
                "make the widths smaller, or raise sub_gcns",
            )


def prepare(gist: GlobalModel, graph: Any, settings: Training, arguments: FitArguments) -> Setup:
    """Check what `GIST.fit` was given, and return what follows from it.

    Args:
        gist: the model.
        graph: a `Graph`, or a `Data` or `HeteroData` of PyG.
        settings: of training, complete.
        arguments: all others of `fit`.

    Raises:
        InputError: they do not go together, or the graph is unusable.
    """
    if settings.budget is not None and arguments.max_seconds is not None:
        seconds = f"{arguments.max_seconds:g}"
        raise InputError(
            f"max_seconds is {seconds}, but a budget limits the time as well: leave one out"
        )
    if settings.budget is not None and gist.method != "gist":
        raise InputError(f"budget is given, but the method is {gist.method}: use gist")
    imported = settings.imported()
    if settings.optimizer not in NAMES["optimizer"]:
        check_optimizer(imported, gist.full_spec.on_meta())
    check_schedule(imported)
    if gist.width_scaling is not None and update_rule(imported) is None:
        log.warning(
            "the learning rates do not follow the widths: a step of the optimizer %s is neither "
            "proportional to "
            "the gradient nor independent of its scale, entry by entry",
            named_as(settings.optimizer),
        )
    sampling = arguments.sampling
    if isinstance(sampling, FromLoader):
        _check_loader(graph, arguments)
    if gist.has_independent_batches:
        sampling = with_independent_batches(sampling, gist.method)
    loaded, scaling = gist.ranks.load(partial(_load_graph, gist, graph, settings, arguments))
    init = None
    if arguments.init is not None:
        init = _initial_values(gist, settings, arguments.init)
    setup = Setup(
        gist=gist,
        arguments=arguments,
        settings=settings,
        graph=loaded.to(gist.device),
        scaling=scaling,
        sampling=chosen_sampling(sampling, loaded.num_nodes),
        init=init,
    )
    if setup.averages:
        log.info(
            "the targets are numbers, so the full model is the mean of its sub-GCNs, not their sum"
        )
    # These are made on first use. A wrong loss or metric is to be refused here.
    _ = setup.training
    _ = setup.metric
    return setup


def _check_loader(graph: Any, arguments: FitArguments) -> None:
    """Refuse what contradicts the batches of a loader."""
    if arguments.inductive:
        raise InputError(
            "inductive is True, but the loader decides what a batch sees: "
            "leave inductive out, and make the loader of data.subgraph(data.train_mask)"
        )
    if type(graph).__name__ == "HeteroData":
        raise InputError(
            "the graph is a HeteroData, but a loader's batches have one type of nodes: "
            "give fit gistgnn.graphs.from_hetero(data), and make the loader of the same"
        )


def _load_graph(
    gist: GlobalModel, graph: Any, settings: Training, arguments: FitArguments
) -> tuple[Graph, Standardisation | None]:
    """Return the graph to train on, and how its features were scaled; one of PyG is converted."""
    graph = _with_targets_of_loss(_as_graph(graph, settings, arguments), settings, gist)
    for name in ("train", "val"):
        if not getattr(graph, name).any():
            raise InputError(
                f"{graph.name} has no {name} nodes: to train, give some to both of train and val"
            )
    standardise = arguments.standardise
    if isinstance(standardise, Standardisation):  # The caller has scaled them.
        return graph, standardise
    scaling = _choose_scaling(gist, graph, standardise, arguments.init)
    return (scaling.graph(graph) if scaling else graph), scaling


def _as_graph(graph: Any, settings: Training, arguments: FitArguments) -> Graph:
    """Return a `Graph` as it is, and a `Data` or `HeteroData` of PyG as a `Graph`."""
    if type(graph).__name__ == "HeteroData":
        if arguments.inductive:
            raise InputError(
                "inductive is True, but the training nodes of a HeteroData are of one type: leave "
                "it"
            )
        standardise = arguments.standardise
        graph = from_hetero(
            graph, standardise=standardise if isinstance(standardise, bool) else None
        )
    if isinstance(graph, Graph):
        return graph
    return Graph.from_pyg(graph, regression=_is_regression(getattr(graph, "y", None), settings))


def _choose_scaling(
    gist: GlobalModel, graph: Graph, standardise: bool | None, init: Any
) -> Standardisation | None:
    """Return how the features are scaled; None if they stay as they are."""
    init_values = saved_state(init) if isinstance(init, (nn.Module, Mapping)) else None
    if standardise is None and init_values is None and _looks_up(gist.full_spec.on_meta(), graph.x):
        log.warning(
            "the features stay as they are, as the model has an nn.Embedding: standardise=True "
            "scales them"
        )
        standardise = False
    return Standardisation.choose(standardise, graph, init_values)


def _looks_up(model: nn.Module, x: Tensor) -> bool:
    """Whether the model has a table of vectors, and x a column of numbers to look up in it."""
    if x.layout is not torch.strided:
        return False
    has_table = any(
        isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in model.modules()
    )
    return has_table and bool((sample_of(x) % 1 == 0).all(dim=0).any())


def _is_regression(y: Any, training: Training) -> bool:
    """Whether the targets of a PyG `Data` are numbers to be predicted.

    The loss says so, or it is the user's own and they are floats that are not labels.
    """
    if (task := task_of(training.loss)) is not None or training.loss is None:
        return task == "numbers"
    return (
        isinstance(y, Tensor)
        and y.is_floating_point()
        and not bool(((y == 0) | (y == 1) | y.isnan()).all())
    )


def _with_targets_of_loss(graph: Graph, training: Training, gist: GlobalModel) -> Graph:
    """Return the graph with targets of the kind that the loss takes.

    Classes or labels become the numbers of a regression, and two classes become one label.
    """
    task = task_of(training.loss)
    if task == "numbers" and not graph.regression:
        targets = graph.y.reshape(graph.num_nodes, -1).float()
        return replace(
            graph, y=targets, num_classes=targets.shape[1], class_names=(), regression=True
        )
    # Two classes and one output are one decision, as in plain torch; its label is the larger class.
    has_two_classes = not (graph.regression or graph.multi_label) and graph.num_classes == 2
    takes_classes = training.loss is None or task == "classes"
    takes_any_outputs = task is None and is_users_own(training.metric)
    is_decision = has_two_classes and not takes_classes and not takes_any_outputs
    if is_decision and _count_outputs(gist) == 1:
        return replace(
            graph, y=graph.y.clamp(min=0).float()[:, None], num_classes=1, class_names=()
        )
    return graph


def _count_outputs(gist: GlobalModel) -> int:
    """Return how many outputs the model has, by running a small one."""
    with Stream(0, "outputs"):  # The user's random stream does not move.
        small = small_instance(gist.build, gist.layout, 0)
    return small.reference.shape[1]


def make_sampler(
    gist: GlobalModel, graph: Graph, sampling: Sampling | None, inductive: bool
) -> Sampler:
    """Make the batches of a run from a graph on the device of `gist`."""
    if isinstance(sampling, FromLoader):
        return LoaderBatches(sampling, BatchReader(graph, gist.scaling), gist.seed)
    batch = training_subgraph(graph) if inductive else whole_graph(graph)
    if sampling is None:
        return FullGraph(batch)
    layers = getattr(gist.full_spec.on_meta(), "num_layers", None)  # Our models and PyG's have it.
    return sampling.sampler(batch, gist.seed, layers)


def with_independent_batches(sampling: Sampling | None, method: str) -> Sampling:
    """Return the same sampling with independent batches.

    With shared batches all workers would learn the same.
    """
    if sampling is None:
        raise InputError(
            f"{method} gives each worker its own batches, but the sampler is full: use clusters"
        )
    return replace(sampling, batches="independent")


def _initial_values(
    gist: GlobalModel, training: Training, init: nn.Module | Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the values of `init` for the full model; refuse it where nothing begins with it."""
    if training.budget:
        raise InputError(
            "init is given beside a budget, which begins with narrow models: leave one out"
        )
    if not gist.merges_sub_gcns:
        raise InputError(f"init is given, but the method is {gist.method}: use gist")
    return values_of(init, gist.full_spec)
