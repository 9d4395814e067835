"""The arguments of `GIST.fit`, the batches that they ask for, and how result.json describes them and the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gistgnn.accounting.operations import Operations
from gistgnn.distributed import Machine
from gistgnn.evaluation import Evaluation
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.sampling import FullGraph, Sampler, Sampling, describe, training_subgraph, whole_graph
from gistgnn.session.saving import Saving
from gistgnn.settings import Training
from gistgnn.utils.checks import check_flag, check_kind
from gistgnn.utils.console import spinner


@dataclass(frozen=True)
class Options:
    """The arguments of `GIST.fit` that are not settings of training; see there."""

    sampler: Sampling | None
    runner: str
    inductive: bool
    evaluation: Evaluation
    progress: bool
    callbacks: Sequence[Any] = ()
    saving: Saving | None = None
    init: nn.Module | Mapping[str, Tensor] | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check what nothing else checks before the first round."""
        for name in ("inductive", "progress"):
            check_flag(name, getattr(self, name))
        check_kind("evaluation", self.evaluation, Evaluation, "an Evaluation, such as Evaluation('layers')")
        check_kind("saving", self.saving, Saving, "a Saving, such as Saving('checkpoints')", none=True)


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Return the entry "graph" of result.json."""
    sizes = {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "multi_label": graph.multi_label,
    }
    return {**sizes, "regression": True} if graph.regression else sizes


def describe_settings(trainer: GlobalModel, graph: Graph, training: Training, options: Options) -> dict[str, Any]:
    """Return the entry "config" of result.json for a run from Python; the command line has its own."""
    evaluation = options.evaluation
    return {
        "dataset": graph.name,
        "model": {
            "name": type(trainer._full_spec.on_meta()).__name__,
            "hidden": list(trainer.widths),
            "shared": trainer.shared,
            "own": True,
        },
        "sub_gcns": trainer.workers,
        "method": trainer.method,
        "partition": trainer.partition.kind,
        "seed": trainer.seed,
        "device": str(trainer.device),
        "training": training.as_dict(),
        "sampler": describe(options.sampler),
        "runner": options.runner,
        "inductive": options.inductive,
        "evaluation": {name: getattr(evaluation, name) for name in ("method", "memory", "parts", "sample")},
        "store": trainer.store.kind,
    }


def make_sampler(
    trainer: GlobalModel, graph: Graph, sampling: Sampling | None, inductive: bool, *, shown: bool
) -> Sampler:
    """Make the batches of a run from a graph on the trainer's device; a machine's ranks share it in memory."""
    share = Machine(trainer.ranks).share
    batch = training_subgraph(graph, share) if inductive else whole_graph(graph)
    if sampling is None:
        return FullGraph(batch)
    layers = getattr(trainer._full_spec.on_meta(), "num_layers", None)  # our models and PyG's have it
    with spinner("preparing batches", shown=shown):
        return sampling.sampler(batch, trainer.seed, share, layers)


def operations_of(trainer: GlobalModel, graph: Graph, options: Options) -> Operations:
    """Count the computing of a run's steps and evaluations."""
    sizes = GraphSizes(graph.num_nodes, graph.num_edges, int(graph.train.sum()))
    own = (trainer._full_spec, trainer.partition, sizes, options.sampler, options.evaluation)
    return Operations.of_run(*own, inductive=options.inductive)
