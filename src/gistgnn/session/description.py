"""What result.json says of a run besides its scores: its settings and its graph."""

from typing import Any

from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.sampling import describe
from gistgnn.session.options import Options
from gistgnn.settings import Training


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
