"""The batches of a run, and how much computing they take."""

from gistgnn.accounting.operations import Operations
from gistgnn.distributed import Machine
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.sampling import FullGraph, Sampler, Sampling, training_subgraph, whole_graph
from gistgnn.session.options import Options
from gistgnn.utils.console import spinner


def make_sampler(
    trainer: GlobalModel, graph: Graph, sampling: Sampling | None, inductive: bool, *, shown: bool
) -> Sampler:
    """Make the batches of a run; what they are cut out of lies once in a machine's memory.

    Args:
        trainer: the model.
        graph: the graph, on the trainer's device.
        sampling: how batches are made; None: every step sees the whole graph.
        inductive: train on the subgraph of the training nodes.
        shown: show that batches are being prepared.
    """
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
