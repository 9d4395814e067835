"""Options that say which model is trained and how, and the configuration that they describe.

Names and defaults come from the dataclasses of `gistgnn.settings` and `gistgnn.runs.config`, which import no torch.
"""

import argparse
import logging
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gistgnn.baselines.registry import METHODS
from gistgnn.cli import options
from gistgnn.cli.options import sampler_of
from gistgnn.cli.phases import PHASES_HELP, SUB_GCNS, parse_phase
from gistgnn.errors import InputError
from gistgnn.nn import MODELS, WITH_HEADS
from gistgnn.runners.registry import RUNNERS
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling.registry import FULL, SAMPLERS
from gistgnn.settings import BUDGET_LR, CHOICES, LONGEST_ROUND, PRECISIONS, SHORTEST_ROUND, Training
from gistgnn.theta.registry import ALIASES, STORES
from gistgnn.training.names import CLASS_LOSSES, CLASS_METRICS

if TYPE_CHECKING:
    from gistgnn.cli.options import Options

log = logging.getLogger(__name__)

NORMS = ("none", "layer", "batch")
NARROW, HIGHEST_LR = 256, 0.1  # features of a sub-GCN below which it learns better at more than 0.01, and the limit
PARTITIONS = ("balanced", "categorical")

_METHOD_HELP = (
    "gist, or what it is compared with, on M workers: data parallel (gradients averaged at every step), local SGD "
    "(full models averaged after N steps), an ensemble of M sub-GCNs that are never merged"
)
_GIST: dict[str, tuple[str | None, str]] = {  # settings of `Training`: metavar and help
    "local_steps": ("N", "ζ, steps in a round"),
    "epochs": ("E", ""),
    "training": (None, "E/m epochs for each sub-GCN, or E, which is m times the work"),
    "redraw_every": ("K", "rounds between two draws of the blocks; 0 keeps the first ones"),
    "cross_weights": (None, "how weights between different blocks begin; zero makes Θ m narrow models side by side"),
    "optimizer_state": (None, "a new optimiser in every round, or moments that travel with the parameters"),
}
_LOSS: dict[str, tuple[str | None, str]] = {
    "loss": ("NAME", f"{', '.join(CLASS_LOSSES)}, or package.module:function of (logits, targets)"),
    "class_weights": ("W", "balanced, or a number for each class"),
    "label_smoothing": ("S", "of the cross-entropy"),
    "metric": (
        "NAME",
        "the score that selects the best model: "
        f"{', '.join(CLASS_METRICS)}, or package.module:function (default: accuracy, or f1_micro with several labels)",
    ),
}
_OPTIMISER: dict[str, tuple[str | None, str]] = {
    "optimizer": (None, ""),
    "lr": (None, "learning rate"),
    "weight_decay": ("W", ""),
    "momentum": (None, "of sgd"),
    "schedule": (None, "step divides the rate by 10 at 50 %% and 75 %% of the run"),
    "precision": (None, "of dense products; parameters are float32"),
    "clip_norm": ("C", "largest norm of a sub-GCN's gradient"),
    "patience": ("K", "stop after K evaluations without a better score"),
    "evaluate_every": ("K", "rounds between evaluations, or auto: so many that they take about a tenth of the time"),
}


def add_training_options(parser: argparse.ArgumentParser, *, several: str = "") -> None:
    """Add the options of the model, of GIST, of batches and of the optimiser.

    If `several` is given, the command takes several m and no method or store; it is the help of --sub-gcns.
    """
    add = partial(options.add_field, parser.add_argument_group("model"), ModelConfig)
    text = "or package.module:function or path/to/file.py:function, called with (in_features, hidden, classes)"
    add("name", text, flag="--model", dest="model", type=options.own_or_known, metavar=f"{{{','.join(MODELS)}}}")
    text = "keywords for a function of --model, such as alpha=0.1 name=x; values are JSON, or else text"
    add(
        "args",
        text,
        flag="--model-args",
        dest="model_args",
        type=options.keyword,
        nargs="+",
        metavar="K=V",
        default=(),
        shown=None,
    )
    text, shown = "width of each hidden layer (of each head, for gat and gatv2)", " ".join(map(str, ModelConfig.hidden))
    add("hidden", text, type=options.width, nargs="+", metavar="D", shown=shown)
    add("dropout", "on hidden features")
    add("norm", choices=NORMS, default=None, shown="layer for graphsage and gin, else none")
    add("heads", "attention heads of gat and gatv2", type=options.heads, default=None, shown=ModelConfig.heads)
    _add_gist_options(parser.add_argument_group("GIST"), several)
    _add_batch_options(parser.add_argument_group("batches"))
    # A comparison has scores that all its runs share.
    loss = {name: text for name, text in _LOSS.items() if not (several and name == "metric")}
    _add_settings(parser.add_argument_group("loss and score"), loss)
    _add_settings(parser.add_argument_group("optimiser"), _OPTIMISER)


def _add_gist_options(group: "Options", several: str) -> None:
    add = partial(options.add_field, group, RunConfig)
    if several:
        group.add_argument("--sub-gcns", type=int, nargs="+", metavar="M", help=several)
    else:
        add("sub_gcns", "m; 1 is the baseline", default=None, shown=SUB_GCNS, metavar="M")
        add(
            "method", _METHOD_HELP, dest="trained_by", choices=list(METHODS)
        )  # --cluster-method takes the name `method`
    _add_settings(group, _GIST)
    text = "time that the run may take, such as 10min: m, phases and schedule are chosen by measuring steps"
    group.add_argument("--budget", type=options.duration, metavar="TIME", help=text)
    group.add_argument("--phases", type=parse_phase, nargs="+", default=(), metavar="M:E", help=PHASES_HELP)
    text = "the dimensions d_L that are split into blocks, 0 for the input features (default: every hidden one)"
    group.add_argument("--partition-dims", type=options.natural, nargs="+", metavar="L", help=text)
    add("partition", "how blocks are drawn", choices=PARTITIONS)
    text = (
        "auto: the sub-GCNs take a step on each batch, one after another; in-turn: each takes all its steps of a round "
        "before the next, with the same result; fused: all in one pass over each batch"
    )
    add("runner", text, choices=list(RUNNERS))
    if not several:
        where = "; ".join(f"{name}: {place.help}" for name, place in STORES.items())
        metavar = f"{{{','.join(STORES)}}}"
        add("store", f"where Θ lies between rounds; {where}", choices=(*STORES, *ALIASES), metavar=metavar)
    add("store_precision", "type of the numbers in the files of disk", choices=PRECISIONS)


def _add_batch_options(group: "Options") -> None:
    add, number = group.add_argument, partial(group.add_argument, type=int)
    add(
        "--sampler",
        choices=(FULL, *SAMPLERS),
        default=FULL,
        help="what a step sees: the whole graph; a few of its clusters; layers of nodes drawn by importance (LADIES, "
        "FastGCN) or of random neighbours; GraphSAINT's subgraphs by nodes, edges or random walks (default: full)",
    )
    # `gistgnn.sampling` has the defaults of the samplers' options, and a test compares the texts.
    number("--clusters", metavar="C", help="c, number of clusters that the graph is cut into")
    number("--clusters-per-batch", metavar="Q", help="(default: 10)")
    add("--cluster-method", dest="method", choices=options.CLUSTER_METHODS, help="(default: metis)")
    text = "clusters: the first layer sums over the batch's edges, not over all of the graph's"
    add("--no-precompute", dest="precompute", action="store_false", default=None, help=text)
    text = "output nodes of a batch (default: 512); saint-*: nodes, edges or walks drawn for one"
    number("--batch-size", metavar="B", help=f"{text} (default: 6000, 4000, 2000)")
    text = "ladies, fastgcn: nodes drawn for a layer; one number, or one for each layer (default: 512)"
    number("--nodes-per-layer", nargs="+", metavar="S", help=text)
    text = "ladies, fastgcn: scale rows to the sums they have in the graph; without, sums are unbiased (default: do)"
    add("--row-normalise", action=argparse.BooleanOptionalAction, help=text)
    text = "neighbor: neighbours drawn for a node; one number, or one for each hop from the output nodes on; -1: all"
    number("--fanout", dest="fanouts", nargs="+", metavar="K", help=f"{text} (default: 10)")
    number("--walk-length", metavar="H", help="saint-rw: steps of a walk (default: 2)")
    text = "saint-rw: walks from every node, counted before training to estimate probabilities (default: 20)"
    number("--sample-coverage", metavar="K", help=text)
    text = "the same for all sub-GCNs, or different ones (default: shared)"
    add("--batches", choices=("shared", "independent"), help=text)
    add("--inductive", action="store_true", help="train on the subgraph of the training nodes; scores are of all")
    text = "scale features to mean 0 and deviation 1 over the training nodes (default: unless they are words)"
    add("--standardise", action=argparse.BooleanOptionalAction, help=text)


def _add_settings(group: "Options", settings: dict[str, tuple[str | None, str]]) -> None:
    """Add the options of some settings of `Training`."""
    for name, (metavar, text) in settings.items():
        extra: dict[str, Any] = {"choices": CHOICES[name]} if name in CHOICES else {"metavar": metavar}
        extra["default"] = getattr(RunConfig.training, name)
        if name == "local_steps":
            extra |= {"shown": f"{SHORTEST_ROUND} to {LONGEST_ROUND}, for 4m rounds if there are steps"}
        if name == "epochs":
            extra |= {"type": int, "default": None, "shown": f"{RunConfig.training.epochs}, or those of the phases"}
        if name == "evaluate_every" or (name in _LOSS and name != "label_smoothing"):
            extra |= {"type": options.count_or_auto if name == "evaluate_every" else str}
        if name == "class_weights":
            extra |= {"nargs": "+"}
        if name == "lr":
            narrow = f"for sub-GCNs narrower than {NARROW} up to m times as much, at most {HIGHEST_LR:g}"
            shown = f"{Training.lr:g}; {narrow}; with --budget {BUDGET_LR:g}"
            extra |= {"type": float, "default": None, "shown": shown}
        options.add_field(group, Training, name, text, **extra)


def config_of(args: argparse.Namespace, sub_gcns: int, store: str) -> RunConfig:
    """Return the run that the options of `add_training_options`, and of data, evaluation, seed and device describe."""
    settings: dict[str, Any] = {field.name: getattr(args, field.name, field.default) for field in fields(Training)}
    if settings["epochs"] is None:
        settings["epochs"] = 0 if args.phases or args.budget else RunConfig.training.epochs
    if settings["class_weights"]:
        settings["class_weights"] = _class_weights(settings["class_weights"])
    if settings["lr"] is None:
        settings["lr"] = _learning_rate(args, sub_gcns)
    training = Training(**settings)
    model = _model(args)
    from gistgnn.graphs import find
    from gistgnn.runs.run_folder import choose_device

    known = find(args.dataset)
    standardise = known.standardise if args.standardise is None and known else args.standardise
    method = getattr(args, "trained_by", RunConfig.method)
    if not METHODS[method].splits and (args.partition_dims or args.partition != RunConfig.partition):
        raise InputError(f"a partition is given, but the method is {method}, which splits nothing: leave it out")

    return RunConfig(
        dataset=args.dataset,
        model=model,
        sub_gcns=sub_gcns,
        method=method,
        partitioned=tuple(args.partition_dims) if args.partition_dims else None,
        partition=args.partition,
        seed=args.seed,
        device=choose_device(args.device),
        training=training,
        sampler=sampler_of(args),
        runner=args.runner,
        inductive=args.inductive,
        standardise=standardise,
        evaluation=options.evaluation_of(args),
        store=store,
        store_precision=args.store_precision,
    )


def _model(args: argparse.Namespace) -> ModelConfig:
    """Return the model that the options describe."""
    if ":" in args.model:
        given = {"dropout": args.dropout != ModelConfig.dropout, "norm": args.norm, "heads": args.heads}
        if unused := next((name for name, used in given.items() if used), None):
            raise InputError(f"{unused} is given, but the model is {args.model}: give it by --model-args {unused}=...")
        return ModelConfig(args.model, tuple(args.hidden), args=dict(args.model_args))
    if args.model_args:
        raise InputError(f"model_args is given, but the model is {args.model}: they are for a function of your own")
    if args.heads is not None and args.model not in WITH_HEADS:
        raise InputError(f"heads is given, but the model is {args.model}: add --model gat or gatv2")
    norm = args.norm or ("layer" if args.model in ("graphsage", "gin") else ModelConfig.norm)
    return ModelConfig(args.model, tuple(args.hidden), args.dropout, norm, args.heads or ModelConfig.heads)


def _class_weights(words: list[str]) -> "Literal['balanced'] | list[float]":
    """Return the weights of the classes: `balanced`, or one number for each."""
    if words == ["balanced"]:
        return "balanced"
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise InputError(
            f"--class-weights is {' '.join(words)}, expected balanced, or a number for each class"
        ) from error


def _learning_rate(args: argparse.Namespace, sub_gcns: int) -> float:
    """Return the learning rate if none is given: it grows as sub-GCNs become narrower than `NARROW`."""
    if args.budget:
        return BUDGET_LR
    splits = METHODS[getattr(args, "trained_by", RunConfig.method)].splits
    if args.phases or not splits:
        return Training.lr
    return min(Training.lr * max(min(sub_gcns, NARROW * sub_gcns / max(args.hidden)), 1), HIGHEST_LR)


def store_name(name: str) -> str:
    """Return the name of a store; note it if the name is one of an earlier version."""
    if name in ALIASES:
        log.warning(f"the store {name} is now called {ALIASES[name]}: use --store {ALIASES[name]}")
    return ALIASES.get(name, name)
