"""What a run is: its configuration, by what a resumed run is known to be the same, and what its ranks must agree on.

Ranks may differ in devices, numbers of threads, folders and file names, time-outs and the network interface, progress
bars, and callbacks.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed.agreement import SAME_GRAPH, SAME_MODEL, SAME_SETTINGS, require_same
from gistgnn.fit.prepare import Setup
from gistgnn.fit.saving import Saving
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.sampling import describe
from gistgnn.theta.model_spec import checksum_of
from gistgnn.utils.tensors import checksum

OWN = ("dataset", "device", "data_root")
"""Settings that may differ: the same graph may lie in another file, and every rank has a device of its own."""


def settings_of(setup: Setup) -> dict[str, Any]:
    """Return the entry "config" of result.json for a run from Python; the command line has its own."""
    gist = setup.gist
    model = type(gist._full_spec.on_meta()).__name__
    return {
        "dataset": setup.graph.name,
        "model": {"name": model, "hidden": list(gist.widths), "shared": gist.shared, "own": True},
        "sub_gcns": gist.workers,
        "method": gist.method,
        "partition": gist.partition.kind,
        "seed": gist.seed,
        "device": str(gist.device),
        "training": setup.given.as_dict(),
        "sampler": describe(setup.sampling),
        "runner": setup.runner,
        "inductive": setup.inductive,
        "standardise": setup.scaling is not None,
        "evaluation": asdict(setup.evaluation),
        "store": gist.store.kind,
        "share": gist.store.share,
    }


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Return the entry "graph" of result.json."""
    facts = {"name": graph.name, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    facts |= {"classes": graph.num_classes, "multi_label": graph.multi_label}
    if graph.class_names:
        facts["class_names"] = list(graph.class_names)
    return {**facts, "regression": True} if graph.regression else facts


def identity_of_model(gist: GlobalModel, saving: Saving | None) -> dict[str, Any]:
    """Describe the model and its partition, so that a checkpoint is not taken for another run's."""
    return {
        **(saving.config if saving else {}),
        "widths": gist.widths,
        "sub_gcns": gist.partition.sub_gcns,
        "partition": gist.partition.kind,
        "seed": gist.seed,
        "parameters": {name: list(spec.shape) for name, spec in gist.theta.specs.items()},
    }


def identity_of(setup: Setup) -> dict[str, Any]:
    """Describe a run of `GIST.fit`, so that its checkpoint is not taken for another run's."""
    gist, graph = setup.gist, setup.graph
    found = {
        **identity_of_model(gist, setup.saving),
        **setup.given.as_dict(),
        "whole": sorted(gist.partition.whole),
        "input_axis": gist.input_axis,
        "graph": [graph.name, graph.num_nodes, graph.num_edges, graph.num_features, graph.checksum()],
        "sampler": describe(setup.sampling),
        "inductive": setup.inductive,
        "evaluation": setup.evaluation.approximation,
        **({} if setup.init is None else {"init": checksum_of(setup.init)}),
        **({} if gist.method == "gist" else {"method": gist.method, "workers": gist.workers}),
    }
    if setup.given.budget:  # a resumed run has the rest of it
        del found["budget"]
    return found


def require_same_training(setup: Setup) -> None:
    """Refuse ranks that are about to train with different settings, models or graphs; all ranks call this."""
    settings = flat_settings(settings_of(setup))
    for name, value in (("budget", setup.given.budget), ("max_seconds", setup.max_seconds)):
        settings[name] = "missing" if value is None else "given"  # what is left of it differs
    require_same_models(setup.gist, setup.saving, settings, setup.init, {SAME_GRAPH: graph_facts(setup.graph)})


def require_same_models(
    gist: GlobalModel,
    saving: Saving | None,
    settings: dict[str, Any],
    init: Mapping[str, Tensor] | None = None,
    further: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Refuse ranks whose partition, saving, model or further facts differ; all ranks call this."""
    partition = gist.partition
    settings = {
        **settings,
        "method": gist.method,
        "sub_gcns": partition.sub_gcns,
        "partition": partition.kind,
        "whole": sorted(partition.whole),
        "input_axis": gist.input_axis,
        "seed": gist.seed,
        "store": gist.store.kind,
        "share": gist.store.share,
        "the default type of torch": str(torch.get_default_dtype()),
        "saving": None,
    }
    if saving:  # the folder may have another name on another machine
        config = {name: value for name, value in saving.config.items() if name not in OWN}
        settings["saving"] = {"every": saving.every, "resume": saving.resume, "config": config}
    model = {**model_facts(gist), "the checksum of init": None if init is None else f"{checksum_of(init):08x}"}
    require_same(gist.ranks, {SAME_SETTINGS: settings, SAME_MODEL: model, **(further or {})})


def flat_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a run's config that all ranks must share: the model's, the training's and all others."""
    model, training = dict(config["model"]), dict(config["training"])
    rest = {name: value for name, value in config.items() if name not in ("model", "training", *OWN)}
    training.pop("budget", None)
    return {"model": model.pop("name"), **model, **training, **rest}


def model_facts(gist: GlobalModel) -> dict[str, Any]:
    """Return the classes of the full model's modules, their numbers (such as a dropout's p), and its parameters."""
    facts: dict[str, Any] = {}
    for name, module in gist._full_spec.on_meta().named_modules():
        facts[f"the class of {name or 'the model'}"] = type(module).__name__
        own = {key: value for key, value in vars(module).items() if isinstance(value, (bool, int, float))}
        facts |= {f"{name}.{key}".lstrip("."): own[key] for key in own if key[0] != "_" and key != "training"}
    specs = gist._full_spec.tensor_specs().items()
    return facts | {f"the shape of {name}": f"{list(shape)} {dtype}" for name, (shape, dtype) in specs}


_SIZES = {"num_nodes": "number of nodes", "num_edges": "number of edges", "num_features": "number of features"}
_SIZES |= {"num_classes": "number of classes", "regression": "regression"}
_TENSORS = {"x": "features", "y": "labels", "train": "training nodes", "val": "validation nodes", "test": "test nodes"}


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return the sizes of a graph, and a checksum of each of its tensors."""
    facts: dict[str, Any] = {f"the graph's {text}": getattr(graph, name) for name, text in _SIZES.items()}
    for name, tensor in ({text: getattr(graph, name) for name, text in _TENSORS.items()} | graph.edge_data).items():
        facts[f"the type of the graph's {name}"] = f"{tensor.dtype} {list(tensor.shape)}"
        facts[f"the checksum of the graph's {name}"] = f"{checksum(tensor):08x}"
    return facts | {"the checksum of the graph's edges": f"{graph.edges.checksum():08x}"}
