"""What a run is, and its fingerprint, which says whether two runs are the same.

A fingerprint has three parts: the settings, the model and the graph. It decides whether a run
resumes from a checkpoint, whether `train --resume` finds its result, whether ranks train the same
thing, which records `compare` and `reproduce` may use again, and it gives a run its id. Where a run
trains is no part of it: the device, the number of ranks and threads, the runner, the place of Θ,
and the names of files and folders.
"""

import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gistgnn.distributed.agreement import ADVICE, SAME_SETTINGS, require_same
from gistgnn.errors import InputError
from gistgnn.fit.prepare import Setup
from gistgnn.fit.saving import Saving
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.layout.axes import construct
from gistgnn.sampling import describe
from gistgnn.storage.json_files import plain
from gistgnn.storage.record import GraphFacts, MetricFacts
from gistgnn.theta.model_spec import ModelSpec, digest_of_tensors
from gistgnn.training.names import NAMES, adds_up, named_as
from gistgnn.utils.random_streams import Stream
from gistgnn.utils.tensors import digest_of, tensor_digest

Fingerprint = dict[str, dict[str, Any]]

# In these settings of the command line ranks may differ.
_ELSEWHERE = ("dataset", "device", "data_root")
# Every module has these attributes, which say nothing of its settings.
_OF_EVERY_MODULE = {*vars(nn.Module()), "training"}
_DEPTH = 4  # Lists and objects in the attribute of a module are described to this depth.


def settings_of(setup: Setup) -> dict[str, Any]:
    """Return the entry "config" of result.json for a run from Python.

    The command line has another.
    """
    gist = setup.gist
    model = type(gist.full_spec.on_meta()).__name__
    return {
        "dataset": setup.graph.name,
        "model": {"name": model, "hidden": list(gist.widths), "shared": gist.shared, "own": True},
        "sub_gcns": gist.workers,
        "method": gist.method,
        "partition": gist.partition.kind,
        **width_settings(gist),
        "seed": gist.seed,
        "device": str(gist.device),
        "training": setup.settings.as_dict(),
        "sampler": describe(setup.sampling),
        "runner": setup.arguments.runner,
        "inductive": setup.arguments.inductive,
        "standardise": setup.scaling is not None,
        "evaluation": asdict(setup.arguments.evaluation),
        "store": gist.store.kind,
        "share": gist.store.share,
    }


def facts_of(setup: Setup, fingerprint: Fingerprint) -> dict[str, Any]:
    """Return the entries of a `Record` that say what a run from Python is."""
    metric = setup.metric
    return {
        "run": digest_of(fingerprint),
        "fingerprint": fingerprint,
        "config": settings_of(setup),
        "graph": describe_graph(setup.graph),
        "standardised": setup.scaling is not None,
        "metric": MetricFacts(
            name=metric.name,
            higher_is_better=bool(metric.higher_is_better),
            percent=metric.percent,
        ),
    }


def width_settings(gist: GlobalModel) -> dict[str, Any]:
    """Return how the learning rates follow the widths, as records hold it."""
    scaling = gist.width_scaling
    if scaling is None:
        return {"width_scaling": "none"}
    return {"width_scaling": "mup", "base_width": scaling.base_width}


def describe_graph(graph: Graph) -> GraphFacts:
    """Return the entry "graph" of result.json."""
    return GraphFacts(
        name=graph.name,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=graph.num_classes,
        multi_label=graph.multi_label,
        class_names=list(graph.class_names),
        regression=graph.regression,
    )


def fingerprint_of(setup: Setup) -> Fingerprint:
    """Return the fingerprint of a run of `GIST.fit`, as JSON holds it."""
    gist = setup.gist
    training = setup.settings.as_dict()
    for name in NAMES:
        value = getattr(setup.settings, name)
        if not isinstance(value, (str, type(None))) and not hasattr(value, "record"):
            training[name] = name_of_function(value)
    if setup.settings.budget:  # A resumed run has less time left.
        del training["budget"]
    settings = {
        **training,
        "method": gist.method,
        "sampler": describe(setup.sampling),
        "inductive": setup.arguments.inductive,
        "evaluation": setup.arguments.evaluation.approximation,
        "standardise": setup.scaling is not None,
        "values of init": None if setup.init is None else digest_of_tensors(setup.init),
    }
    if gist.method != "gist":
        settings["workers"] = gist.workers
    graph = plain(graph_facts(setup.graph))
    if setup.scaling is not None:
        graph["means and deviations of the graph's features"] = setup.scaling.digest()
    return fingerprint_of_model(gist, setup.arguments.saving, settings) | {"graph": graph}


def fingerprint_of_model(
    gist: GlobalModel, saving: Saving | None, settings: Mapping[str, Any]
) -> Fingerprint:
    """Return the fingerprint of a run without a graph, such as a loop of the user's own."""
    partition = gist.partition
    store = gist.store
    settings = {
        "seed": gist.seed,
        "widths": gist.widths,
        "sub_gcns": partition.sub_gcns,
        "partition": partition.kind,
        **width_settings(gist),
        "whole": sorted(partition.whole),
        "input_axis": gist.input_axis,
        "store_precision": store.precision,
        **settings,
        **(saving.config if saving else {}),
    }
    return {"settings": plain(settings), "model": plain(model_facts(gist.full_spec))}


def require_same_training(setup: Setup, fingerprint: Fingerprint) -> None:
    """Refuse ranks with different settings, models or graphs; all ranks call this."""
    arguments = setup.arguments
    settings = {
        "runner": arguments.runner,
        "evaluation": asdict(arguments.evaluation),
        # The time that is left differs from rank to rank.
        "budget": "missing" if setup.settings.budget is None else "given",
        "max_seconds": "missing" if arguments.max_seconds is None else "given",
    }
    require_same_ranks(setup.gist, arguments.saving, fingerprint, settings)


def require_same_ranks(
    gist: GlobalModel, saving: Saving | None, fingerprint: Fingerprint, settings: Mapping[str, Any]
) -> None:
    """Refuse ranks whose fingerprints or further settings differ; all ranks call this."""
    config = saving.config if saving else {}
    facts = {ADVICE[part]: dict(values) for part, values in fingerprint.items()}
    facts[SAME_SETTINGS] = {
        **{name: value for name, value in fingerprint["settings"].items() if name not in config},
        **settings,
        "store": gist.store.kind,
        "share": gist.store.share,
        "the default type of torch": str(torch.get_default_dtype()),
        "saving": None,
    }
    if saving:  # The folder may have another name on another machine.
        config = {name: value for name, value in config.items() if name not in _ELSEWHERE}
        facts[SAME_SETTINGS]["saving"] = {
            "every": saving.every,
            "resume": saving.resume,
            "config": config,
        }
    require_same(gist.ranks, facts)


def flat_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a run's config that all ranks must share, in one dictionary."""
    model = dict(config["model"])
    training = dict(config["training"])
    other_entries = {
        name: value
        for name, value in config.items()
        if name not in ("model", "training", *_ELSEWHERE)
    }
    training.pop("budget", None)
    return {"model": model.pop("name"), **model, **training, **other_entries}


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return the sizes of a graph, and a digest of each of its parts; its name is no part of it."""
    facts: dict[str, Any] = {
        "the graph's number of nodes": graph.num_nodes,
        "the graph's number of edges": graph.num_edges,
        "the graph's number of features": graph.num_features,
        "the graph's number of classes": graph.num_classes,
        "the graph's classes": list(graph.class_names),
        "regression": graph.regression,
    }
    return facts | {f"the graph's {name}": digest for name, digest in graph.digests().items()}


def model_facts(spec: ModelSpec) -> dict[str, Any]:
    """Return what tells a model from another.

    This is the classes and attributes of all modules, the shapes of all parameters, and the values
    of buffers.
    """
    model = spec.on_meta()
    facts = module_facts(model)
    has_buffers = any(True for _ in model.buffers())
    if has_buffers or any(_holds_tensors(module) for module in model.modules()):
        facts |= _fixed_values(spec)
    specs = spec.tensor_specs().items()
    return facts | {f"shape of {name}": f"{list(shape)} {dtype}" for name, (shape, dtype) in specs}


def module_facts(model: nn.Module) -> dict[str, Any]:
    """Return the class of every module, and its attributes.

    These are numbers, such as a dropout's p, texts and functions.
    """
    facts: dict[str, Any] = {}
    for path, module in model.named_modules():
        where = path or "the model"
        facts[f"class of {where}"] = type(module).__name__
        for name, value in vars(module).items():
            if name in _OF_EVERY_MODULE:
                continue
            described = _described(value)
            if described not in (None, [], {}):
                facts[f"{name} of {where}"] = described
        if enclosed := _enclosed(type(module).forward):
            facts[f"variables of the function around {where}"] = enclosed
    return facts


def name_of_function(value: Any) -> str:
    """Return the name of a user's function or class, with a digest if it cannot be imported."""
    name = str(named_as(value))
    importable = isinstance(value, (type, types.BuiltinFunctionType)) or _is_importable(value)
    return name if importable else f"{name} {digest_of(plain(_described(value)))[:8]}"


def _holds_tensors(module: nn.Module) -> bool:
    return any(isinstance(value, Tensor) for value in vars(module).values())


def _fixed_values(spec: ModelSpec) -> dict[str, Any]:
    """Return digests of the buffers of a small model, and of its modules' other tensors."""
    for factor in (1, 2, 4, 8, 16):  # Some models need widths that are divisible by 8, say.
        widths = spec.layout.widths([factor * (5 + axis) for axis in range(len(spec.layout.units))])
        with Stream(0, "fingerprint"):
            try:
                model = construct(spec.build, widths, shared=spec.layout.shared)
            except InputError:
                continue
        tensors = dict(model.named_buffers())
        for path, module in model.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    tensors[f"{path}.{name}".lstrip(".")] = value
        return {
            f"values of {name}": tensor_digest(value)
            for name, value in tensors.items()
            if not value.is_meta
        }
    return {}


def _described(value: Any, depth: int = _DEPTH) -> Any:
    """Return what JSON can hold of the value of an attribute.

    Returns None if nothing of it tells models apart.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (Enum, complex, torch.dtype)):
        return str(value)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return "objects"
        return digest_of([value.dtype.str, list(value.shape), value.tolist()])
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        # JSON has no NaN, no infinity, and no larger integers.
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {value.dtype}" if value.is_meta else tensor_digest(value)
    if depth == 0:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {str(key): _described(entry, depth - 1) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(_described(entry, depth - 1)) for entry in value)
    if isinstance(value, (list, tuple)):
        return [_described(entry, depth - 1) for entry in value]
    if adds_up(value):
        # As before every score: what it has added up is no part of it.
        with suppress(Exception):  # If it cannot be reset, the first score says so.
            value.reset()
    if isinstance(value, nn.Module):
        return _describe_module(value, depth)
    if isinstance(value, partial):
        return [_described(entry, depth - 1) for entry in (value.func, value.args, value.keywords)]
    if isinstance(value, types.MethodType):
        return [_described(value.__func__, depth - 1), type(value.__self__).__name__]
    if isinstance(value, types.FunctionType):
        if _is_importable(value):
            return _qualified_name(value)
        defaults = [
            _described(values, depth - 1) for values in (value.__defaults__, value.__kwdefaults__)
        ]
        meaning = [_code(value.__code__), defaults, _enclosed(value, depth - 1)]
        return f"the function {value.__name__} {digest_of(plain(meaning))[:8]}"
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return _qualified_name(value)
    names = (
        [field.name for field in fields(value)]
        if is_dataclass(value)
        else getattr(value, "__dict__", {})
    )
    public = {name: getattr(value, name, None) for name in names if not name.startswith("_")}
    return {
        "class": type(value).__name__,
        **{name: _described(entry, depth - 1) for name, entry in public.items()},
    }


def _describe_module(module: nn.Module, depth: int) -> dict[str, Any]:
    """Return the class, the attributes and the tensors of a module that is no part of the model.

    It is a loss or a metric, say.
    """
    facts: dict[str, Any] = {"class": type(module).__name__}
    for path, part in module.named_modules():
        if path:
            facts[f"class of {path}"] = type(part).__name__
        for name, value in vars(part).items():
            is_public = not name.startswith("_") or isinstance(value, (bool, int, float, str))
            if is_public and name not in _OF_EVERY_MODULE:
                described = _described(value, depth - 1)
                if described not in (None, [], {}):
                    facts[f"{path}.{name}".lstrip(".")] = described
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        facts[name] = _described(tensor)
    return facts


def _is_importable(function: Any) -> bool:
    """Whether a function is known by its name: it stands in a module, and is no lambda."""
    return isinstance(function, types.FunctionType) and "<" not in function.__qualname__


def _qualified_name(value: Any) -> str:
    module = str(getattr(value, "__module__", None) or "")
    return f"{module.replace('__mp_main__', '__main__')}.{value.__qualname__}".lstrip(".")


def _enclosed(function: Any, depth: int = _DEPTH) -> dict[str, Any]:
    """Return the variables of the surrounding function that a function uses.

    One may be the p of a dropout.
    """
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    if code is None or depth == 0:
        return {}
    variables: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=False):
        if name == "__class__":
            continue
        try:
            value = cell.cell_contents
        except ValueError:  # The variable has no value yet.
            continue
        described = _described(value, depth - 1)
        if described is not None:
            variables[name] = described
    return variables


def _code(code: types.CodeType) -> str:
    """Return a digest of what a function does, wherever it stands."""
    inner = [_code(entry) for entry in code.co_consts if isinstance(entry, types.CodeType)]
    constants = [entry for entry in code.co_consts if not isinstance(entry, types.CodeType)]
    texts = [
        sorted(map(repr, entry)) if isinstance(entry, frozenset) else repr(entry)
        for entry in constants
    ]
    return digest_of([code.co_code.hex(), texts, code.co_names, inner])
