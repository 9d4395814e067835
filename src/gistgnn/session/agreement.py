"""What the ranks of a run have to agree on before they train: settings, model and graph.

Not compared, because they may differ: devices, numbers of threads, folders and file names, time-outs and the network
interface, progress bars, and what callbacks do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gistgnn.distributed.agreement import Facts, require_same
from gistgnn.graphs import CSR, Graph
from gistgnn.session.description import describe_settings
from gistgnn.session.options import Options
from gistgnn.session.trainer import Trainer
from gistgnn.settings import Training
from gistgnn.theta.given_values import checksum_of
from gistgnn.utils.checksums import checksum

if TYPE_CHECKING:
    from gistgnn.global_model import GlobalModel
    from gistgnn.session.saving import Saving


SAME_MODEL = "give all ranks the same model"
PLACES = ("dataset", "device", "data_root")
"""Settings that may differ: the same graph may lie in another file, and every rank has a device of its own."""

_CALLED = {
    "x": "features",
    "y": "labels",
    "train": "training nodes",
    "val": "validation nodes",
    "test": "test nodes",
}


def require_same_run(
    trainer: Trainer, graph: Graph, training: Training, options: Options, init: Mapping[str, Tensor] | None
) -> None:
    """Refuse ranks that are about to train with different settings, models or graphs; all ranks call this.

    Args:
        trainer: the model.
        graph: as it is trained on.
        training: the settings as they were given.
        options: likewise.
        init: the values that Θ begins with; None: those of the seed.

    Raises:
        InputError: on all ranks; the message names the first difference.
    """
    if trainer.ranks.count == 1:
        return
    own = {
        **flat_settings(describe_settings(trainer, graph, training, options)),
        **partition_facts(trainer),
        "budget": _given(training.budget),  # what is left of it depends on when the process began
        "max_seconds": _given(options.max_seconds),
        "callbacks": _given(options.callbacks or None),
        "init": _given(init),
        **saving_facts(options.saving),
    }
    require_same(
        trainer.ranks,
        Facts(own),
        Facts(model_facts(trainer), SAME_MODEL),
        Facts({"the checksum of init": None if init is None else f"{checksum_of(init):08x}"}, SAME_MODEL),
        Facts(graph_facts(graph), "give all ranks the same graph"),
    )


def flat_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, as result.json holds them, that have to agree; those of the model among them."""
    model, training = dict(config["model"]), dict(config["training"])
    rest = {name: value for name, value in config.items() if name not in ("model", "training", *PLACES)}
    training.pop("budget", None)
    return {"model": model.pop("name"), **model, **training, **rest}


def partition_facts(trainer: Trainer | GlobalModel) -> dict[str, Any]:
    """Return what the blocks of every round follow from."""
    partition = trainer.partition
    return {
        "method": trainer.method,
        "sub_gcns": partition.sub_gcns,
        "partition": partition.kind,
        "whole": sorted(partition.whole),
        "input_axis": trainer.input_axis,
        "seed": trainer.seed,
        "store": trainer.store.kind,
        "the default type of torch": str(torch.get_default_dtype()),
    }


def saving_facts(saving: Saving | None) -> dict[str, Any]:
    """Return how a run is saved; the folder may have another name on another machine."""
    if saving is None:
        return {"saving": None}
    config = {name: value for name, value in saving.config.items() if name not in PLACES}
    return {"saving": {"every": saving.every, "resume": saving.resume, "config": config}}


def model_facts(trainer: Trainer | GlobalModel) -> dict[str, Any]:
    """Return the parameters of the full model, the classes of its modules, and the numbers that they hold.

    Numbers are attributes such as a dropout's p. What else a module computes is not compared.
    """
    spec = trainer._full_spec
    facts: dict[str, Any] = {}
    for name, module in spec.on_meta().named_modules():
        facts[f"the class of {name or 'the model'}"] = type(module).__name__
        facts |= {f"{name}.{key}".lstrip("."): value for key, value in vars(module).items() if _is_setting(key, value)}
    for name, (shape, dtype) in spec.tensor_specs().items():
        facts |= {f"the shape of {name}": str(list(shape)), f"the type of {name}": str(dtype)}
    return facts


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return the sizes of a graph, and a checksum of each of its tensors."""
    facts: dict[str, Any] = {
        "the graph's number of nodes": graph.num_nodes,
        "the graph's number of edges": graph.num_edges,
        "the graph's number of features": graph.num_features,
        "the graph's number of classes": graph.num_classes,
        "the graph's regression": graph.regression,
    }
    parts = {name: getattr(graph, name) for name in ("x", "y", "train", "val", "test")}
    for name, tensor in {**parts, **graph.edge_data}.items():
        called = f"the graph's {_CALLED.get(name, name)}"
        facts[f"the type of {called}"] = str(tensor.dtype)
        facts[f"the shape of {called}"] = str(list(tensor.shape))
        facts[f"the checksum of {called}"] = f"{checksum(tensor):08x}"
    edges = graph.edges.checksum() if isinstance(graph.edges, CSR) else checksum(graph.edges)
    facts["the checksum of the graph's edges"] = f"{edges:08x}"
    return facts


def _given(value: Any) -> str:
    return "missing" if value is None else "given"


def _is_setting(name: str, value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and not name.startswith("_") and name != "training"
