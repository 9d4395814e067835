"""Options that say which model is trained and how, and the configuration that they describe.

The options of the model and of training follow from the fields of `ModelConfig`, `RunConfig` and
`Training`.
"""

import argparse
import logging
import os
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.baselines.registry import UNSPLIT
from gistgnn.cli import config_file, further_settings, options, values
from gistgnn.cli.messages import fields_as_options
from gistgnn.cli.process import leads, load_torch, seconds_of_loading, world_size
from gistgnn.defaults import (
    DROPOUT,
    EPOCHS,
    MOST_SUB_GCNS,
    WIDE,
    chosen_sub_gcns,
)
from gistgnn.errors import InputError
from gistgnn.nn import MODELS, WITH_HEADS
from gistgnn.report.names import model_title
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling.registry import AUTO, FULL, SAMPLERS
from gistgnn.settings import LONGEST_ROUND, LR, SHORTEST_ROUND, Training
from gistgnn.theta.registry import SHARDED, STORES
from gistgnn.training.names import CLASS_LOSSES, NAMES
from gistgnn.utils.checks import check_setting, did_you_mean, setting_types

DIGITS = "digits"  # the data set without --dataset
ABOUT_DIGITS = "handwritten digits, images joined to their 10 nearest ones"

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from gistgnn.graphs import Graph, GraphSizes
    from gistgnn.sampling import Sampling


def known_model(text: str) -> str:
    """Read the name of a model: one of ours, or a function of the user's own."""
    if text in MODELS or ":" in text:
        return text
    names = ", ".join(MODELS)
    raise argparse.ArgumentTypeError(
        f"is '{text}', expected {names}, or file.py:function{did_you_mean(text, MODELS)}"
    )


# Arguments of `add_fields` where the command line differs from the field, or chooses the value if
# the option is not typed.
_SPECIAL: dict[str, dict[str, Any]] = {
    "epochs": dict(help="passes over the graph, fractions too", shown=f"{EPOCHS} for each sub-GCN"),
    "local_steps": dict(
        shown=f"{SHORTEST_ROUND} to {LONGEST_ROUND}, for 4m rounds if there are steps"
    ),
    "lr": dict(shown=f"{LR:g}"),
    "dropout": dict(default=None, shown=f"{DROPOUT:g}"),
    "norm": dict(
        default=None, shown="layer for graphsage and gin, and for gcn with m > 1; else none"
    ),
    "sub_gcns": dict(
        help="m, the number of sub-GCNs; 1: no GIST",
        default=None,
        shown=f"so that they are {WIDE} wide, up to {MOST_SUB_GCNS}",
    ),
    "name": dict(flag="--model", dest="model", type=known_model),
    "args": dict(
        flag="--model-args", dest="model_args", type=values.keyword, nargs="+", shown=None
    ),
    "store": dict(
        choices=(AUTO, *STORES, SHARDED), default=AUTO, shown="auto: the first in which it fits"
    ),
    "hidden": dict(shown=" ".join(map(str, ModelConfig.hidden))),
    "inductive": dict(action=argparse.BooleanOptionalAction),
    "standardise": dict(default=None, shown="unless they are words"),
    "class_weights": dict(nargs="+"),
    "metric": dict(shown="accuracy, or f1_micro with several labels"),
}

# Options of samplers, whose modules import torch. Several samplers may have a setting of the same
# name.
_DRAWS = "output nodes of a batch (default: 512); saint-*: draws (default: 6000, 4000, 2000)"
_FANOUTS = "neighbor: neighbours drawn for a node; one number, or each hop's; -1: all (default: 10)"
_SAMPLING: dict[str, dict[str, Any]] = {
    "clusters": {
        "metavar": "C",
        "help": "c, number of clusters (default: by the graph)",
    },
    "clusters_per_batch": {"metavar": "Q", "help": "(default: about 2,000 nodes)"},
    "batch_size": {"metavar": "B", "help": _DRAWS},
    "fanout": {"metavar": "K", "nargs": "+", "help": _FANOUTS},
}
# The names of options, by the field of a sampler, where these differ.
_NAMES_OF_FIELDS = {"method": "cluster_method", "fanouts": "fanout"}


def add_training_options(parser: options.Parser, *, several: str = "") -> None:
    """Add the options of training.

    They are those of the data, the model, GIST, batches, the optimiser and the evaluation.

    Args:
        parser: of the command.
        several: the help of --sub-gcns of a command that takes several m. Such a command has no
            --method and no --metric, and adds --store and --share itself. Defaults to one m.
    """
    options.add_data_options(parser, default=DIGITS)
    config_file.add_option(parser)
    group = parser.add_group
    add = partial(options.add_fields, special=_SPECIAL)
    add(group("model"), ModelConfig, "name", "args", "hidden", "dropout", "norm")
    of_gist = group("GIST")
    if several:
        of_gist.add_argument("--sub-gcns", type=int, nargs="+", metavar="M", help=several)
    else:
        add(of_gist, RunConfig, "sub_gcns", "method")
    add(of_gist, RunConfig.training, "local_steps", "epochs")
    text = "for the run, such as 10min: a narrow model is chosen by trials, trained, and made wide"
    of_gist.add_argument("--budget", type=values.duration, metavar="TIME", help=text)
    add(of_gist, RunConfig, "runner", *(() if several else ("store", "share")))
    batches = group("batches")
    text = (
        "what a step sees: the whole graph; a few of its clusters; layers of nodes drawn by "
        "importance (LADIES, FastGCN) or of random neighbours; GraphSAINT's subgraphs by nodes, "
        "edges or random walks (default: auto: the whole graph up to 2,000 nodes, clusters above)"
    )
    batches.add_argument("--sampler", choices=(FULL, *SAMPLERS), default=AUTO, help=text)
    for name, arguments in _SAMPLING.items():
        batches.add_argument(f"--{name.replace('_', '-')}", **{"type": int, **arguments})
    add(batches, RunConfig, "inductive", "standardise")
    # A comparison has scores that all its runs share.
    losses = ("loss", "class_weights", *(() if several else ("metric",)))
    add(group("loss and score"), RunConfig.training, *losses)
    of_optimizer = ("optimizer", "lr", "weight_decay", "schedule", "patience", "evaluate_every")
    add(group("optimiser"), RunConfig.training, *of_optimizer)
    options.add_evaluation_options(parser, default="auto", parts=False)
    further_settings.add_option(parser)


def given_sub_gcns(args: argparse.Namespace) -> int | None:
    """Return m as --sub-gcns says; None if it does not.

    A budget chooses m. Then this is the number of ranks.
    """
    if not args.budget:
        return None if args.sub_gcns is None else int(args.sub_gcns)
    if args.sub_gcns is not None:
        raise InputError(
            f"sub_gcns is {args.sub_gcns}, but a budget is given, which chooses m: leave one out"
        )
    return world_size()


def without_dataset(args: argparse.Namespace) -> str:
    """Return what to say if --dataset was forgotten: which graph is used; empty if it was not."""
    if "dataset" in args.typed:
        return ""
    return (
        f"no --dataset is given, so the graph is {ABOUT_DIGITS}; give your own by --dataset "
        "my_graph.npz, or a name from `gistgnn datasets`"
    )


def title_of(args: argparse.Namespace) -> str:
    """Return what a command is about to train, in a few words."""
    return f"{model_title(args.model, args.hidden)}, on {args.dataset}"


def config_from_args(
    args: argparse.Namespace, sub_gcns: int | None, store: str = "memory", title: str = ""
) -> RunConfig:
    """Return the run that the options describe; settings are checked before torch is imported.

    Args:
        args: the options of `add_training_options`, and of the seed and the device.
        sub_gcns: m; None: the widths choose it.
        store: where Θ lies.
        title: see `load_torch`.

    Raises:
        InputError: a setting is wrong, or does not go with another one.
    """
    further = further_settings.further_settings(args)
    config = {
        field.name: getattr(args, field.name)
        for field in fields(RunConfig)
        if hasattr(args, field.name)
    }
    config |= {"store": store, **further["run"]}
    partitioned = config.get("partitioned")
    if sub_gcns is None:
        split = [
            width
            for dim, width in enumerate(args.hidden, 1)
            if partitioned is None or dim in partitioned
        ]
        sub_gcns = max(chosen_sub_gcns(max(split, default=1)), world_size())
        log.debug(
            "m = %d: sub-GCNs are at least %d features wide, and at most %d",
            sub_gcns, WIDE, MOST_SUB_GCNS,
        )  # fmt: skip
    config["sub_gcns"] = sub_gcns
    config["model"] = _model(args, further["model"], sub_gcns)
    config["training"] = _training(args, further["training"])
    for name, hint in setting_types(RunConfig).items():
        if name in config:
            check_setting(name, config[name], hint)
    method = config.get("method", RunConfig.method)
    if method in UNSPLIT and partitioned:
        raise InputError(
            f"a partition is given, but the method is {method}, which splits nothing: leave it out"
        )
    path = os.path.expanduser(args.dataset)
    if path.lower().endswith(options.GRAPH_FILES) and not os.path.exists(path):
        raise InputError(
            f"{path}: no such file; expected a graph in a {' or a '.join(options.GRAPH_FILES)} file"
        )
    load_torch("gistgnn.gist", title)
    from gistgnn.evaluation import Evaluation
    from gistgnn.graphs import find
    from gistgnn.runs.run_folder import choose_device

    if args.standardise is None and (info := find(args.dataset)):
        config["standardise"] = info.standardise
    config["device"] = choose_device(args.device)
    log.debug("device: %s", config["device"])
    config["sampler"] = _sampler(args, further["sampler"])
    with fields_as_options(options.NAMES_OF_EVALUATION):
        config["evaluation"] = Evaluation(
            args.evaluation or "auto", args.evaluation_memory, **further["evaluation"]
        )
    return RunConfig(**config)


def sizes_of(args: argparse.Namespace) -> "GraphSizes":
    """Return the sizes of the graph.

    They are those of the list of data sets if it has a name. Otherwise the graph is read, and kept
    for `graph_of`.
    """
    from gistgnn.graphs import GraphSizes, find
    from gistgnn.utils.console import spinner

    if info := find(args.dataset):
        return info
    with spinner(f"reading {args.dataset}", shown=leads()):
        args.graph = graph_of(args)
    return GraphSizes.of_graph(args.graph)


def graph_of(args: argparse.Namespace) -> "Graph":
    """Read the graph, unless `sizes_of` has."""
    from gistgnn.graphs import load

    graph: Graph | None = vars(args).pop("graph", None)
    return graph or load(args.dataset, args.data_root)


def _training(args: argparse.Namespace, further: dict[str, Any]) -> Training:
    settings: dict[str, Any] = {
        field.name: getattr(args, field.name, field.default) for field in fields(Training)
    }
    settings |= further
    if settings["loss"] in NAMES["loss"] and settings["loss"] not in CLASS_LOSSES:
        raise InputError(
            f"loss is {settings['loss']}, which is for numbers, and the command line trains on "
            f"classes: use {' or '.join(CLASS_LOSSES)}, or GIST.fit in Python"
        )
    if settings["class_weights"] == ["balanced"]:
        settings["class_weights"] = "balanced"
    return Training(**settings)


def _model(args: argparse.Namespace, further: dict[str, Any], sub_gcns: int) -> ModelConfig:
    if ":" in args.model:
        unused = [name for name in ("dropout", "norm") if getattr(args, name) is not None]
        unused += further
        if unused:
            advice = f"give it by --model-args {unused[0]}=..."
            raise InputError(f"{unused[0]} is given, but the model is {args.model}: {advice}")
        return ModelConfig(args.model, tuple(args.hidden), args=dict(args.model_args or ()))
    if args.model_args:
        raise InputError(
            f"model_args is given, but the model is {args.model}: they are for a function of your "
            "own"
        )
    for name in ("heads", "attention_dropout"):
        if name in further and args.model not in WITH_HEADS:
            raise InputError(
                f"{name} is given, but the model is {args.model}: add --model gat or gatv2"
            )
    # Merged blocks that have not learned together need the norm: GCNs without it lose up to 15
    # points.
    needs_norm = args.model in ("graphsage", "gin") or (args.model == "gcn" and sub_gcns > 1)
    begun_with = _model_of_run(getattr(args, "init", None))
    suited_norm = begun_with.get("norm") or ("layer" if needs_norm else ModelConfig.norm)
    config = ModelConfig(
        args.model,
        tuple(args.hidden),
        dropout=DROPOUT if args.dropout is None else args.dropout,
        norm=args.norm or suited_norm,
        **further,
    )
    log.debug("model: norm %s, dropout %g", config.norm, config.dropout)
    # No tensor says which norm and activation a model has.
    for name, option in (("norm", "--norm "), ("activation", "--set activation=")):
        value = getattr(config, name)
        if begun_with.get(name, value) != value:
            had = f"the model of --init {args.init} has {begun_with[name]}"
            raise InputError(f"{name} is {value}, but {had}: give {option}{begun_with[name]}")
    return config


def _model_of_run(folder: str | None) -> dict[str, Any]:
    """Return the norm and the activation of the model in the folder of a run.

    It is empty without a folder, for a model that is not one of ours, and where it cannot be read.
    """
    if folder is None:
        return {}
    from gistgnn.storage.record import RESULT, read_result

    try:
        model = read_result(Path(folder) / RESULT, "").config["model"]
    except InputError:
        return {}  # The run is refused later, when its model is read.
    if ":" in model["name"] or model.get("own"):
        return {}
    return {"norm": model.get("norm"), "activation": model.get("activation", "relu")}


def _sampler(args: argparse.Namespace, further: dict[str, Any]) -> "Sampling | None":
    """Return the sampler of the options; None where every step sees the whole graph."""
    fields_of = {name: {field.name for field in fields(kind)} for name, kind in SAMPLERS.items()}
    settings = {}  # by the sampler's fields
    for option in _SAMPLING:
        value = getattr(args, option)
        if value is not None:
            settings["fanouts" if option == "fanout" else option] = value
    settings |= further
    sampler = args.sampler
    is_of_auto = settings.keys() <= fields_of[AUTO]
    if sampler == AUTO and not is_of_auto and settings.keys() <= fields_of["clusters"]:
        sampler = "clusters"
    for field in settings:
        if field not in fields_of.get(sampler, ()):
            samplers = " or ".join(name for name, names in fields_of.items() if field in names)
            option = _NAMES_OF_FIELDS.get(field, field)
            raise InputError(
                f"{option} is given, but the sampler is {sampler}: add --sampler {samplers}"
            )
    if sampler == FULL:
        return None
    for field, value in settings.items():
        if isinstance(value, list) and len(value) == 1:  # one number, the same for every layer
            settings[field] = value[0]
    with fields_as_options(_NAMES_OF_FIELDS):
        made: Sampling = SAMPLERS[sampler](**settings)
    return made


def seconds_left(limit: float | None) -> float | None:
    """Return what is left for training of a time that began with the process.

    Args:
        limit: the time in seconds; None: there is no limit, and this returns None.
    """
    import psutil

    if limit is None:
        return None
    passed = time.time() - psutil.Process().create_time()
    # To write the model and the report takes about as long as it took to load torch: both are
    # longer on a busy machine.
    writing = min(seconds_of_loading.get("torch", 0.0), limit / 10)
    return max(limit - passed - writing, 1e-3)
