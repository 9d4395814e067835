"""What the ranks of a run have to agree on before they train: settings, model and graph.

Not compared, because they may differ: devices, numbers of threads, folders and file names, time-outs and the network
interface, progress bars, and callbacks.
"""

from __future__ import annotations

from typing import Any

import torch

from gistgnn.distributed.agreement import SAME_GRAPH, SAME_MODEL, SAME_SETTINGS, require_same
from gistgnn.fit.prepare import Setup
from gistgnn.fit.saving import Saving
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.theta.model_spec import checksum_of
from gistgnn.utils.checksums import checksum

OWN = ("dataset", "device", "data_root")
"""Settings that may differ: the same graph may lie in another file, and every rank has a device of its own."""


def require_same_training(setup: Setup) -> None:
    """Refuse ranks that are about to train with different settings, models or graphs; all ranks call this."""
    given = {"budget": setup.given.budget, "max_seconds": setup.max_seconds}  # what is left of them differs
    settings = {
        **flat_settings(setup.config()),
        **{name: "missing" if value is None else "given" for name, value in given.items()},
        **partition_facts(setup.gist),
        **saving_facts(setup.saving),
    }
    start = {"the checksum of init": None if setup.init is None else f"{checksum_of(setup.init):08x}"}
    model = {**model_facts(setup.gist), **start}
    require_same(setup.gist.ranks, {SAME_SETTINGS: settings, SAME_MODEL: model, SAME_GRAPH: graph_facts(setup.graph)})


def flat_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a run's config that all ranks must share: the model's, the training's and all others."""
    model, training = dict(config["model"]), dict(config["training"])
    rest = {name: value for name, value in config.items() if name not in ("model", "training", *OWN)}
    training.pop("budget", None)
    return {"model": model.pop("name"), **model, **training, **rest}


def partition_facts(gist: GlobalModel) -> dict[str, Any]:
    """Return what the blocks of every round follow from."""
    partition = gist.partition
    return {
        "method": gist.method,
        "sub_gcns": partition.sub_gcns,
        "partition": partition.kind,
        "whole": sorted(partition.whole),
        "input_axis": gist.input_axis,
        "seed": gist.seed,
        "store": gist.store.kind,
        "the default type of torch": str(torch.get_default_dtype()),
    }


def saving_facts(saving: Saving | None) -> dict[str, Any]:
    """Return how a run is saved; the folder may have another name on another machine."""
    if saving is None:
        return {"saving": None}
    config = {name: value for name, value in saving.config.items() if name not in OWN}
    return {"saving": {"every": saving.every, "resume": saving.resume, "config": config}}


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
