"""The options that say which model is trained and how, and the run that they describe."""

import argparse
from typing import TYPE_CHECKING

from gistgnn.cli.options import CLUSTER_METHODS, count, evaluation_of, natural
from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.runs.config import RunConfig
    from gistgnn.sampling import Sampling


# As gistgnn.baselines and gistgnn.sampling have them, whose import would take seconds.
METHODS = ("gist", "data-parallel", "local-sgd", "ensemble")
SAMPLERS = ("full", "clusters", "ladies", "fastgcn", "neighbor", "saint-node", "saint-edge", "saint-rw")
_OPTION = {"method": "cluster_method", "fanouts": "fanout"}  # what a setting is called on the command line


def add_training_options(parser: argparse.ArgumentParser, *, several: str = "") -> None:
    """Add the options of the model, of GIST, of batches and of the optimiser; `several`: many m, and what they are."""
    _add_model_options(parser)
    _add_gist_options(parser, several=several)
    _add_sampler_options(parser)
    _add_optimizer_options(parser)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", choices=("gcn", "graphsage", "gat"), default="gcn", help="(default: gcn)")
    group.add_argument(
        "--hidden",
        type=count,
        nargs="+",
        default=[256, 256],
        metavar="D",
        help="width of each hidden layer (of each head, for gat) (default: 256 256)",
    )
    group.add_argument("--dropout", type=float, default=0.5, help="on hidden features (default: 0.5)")
    group.add_argument("--norm", choices=("none", "layer", "batch"), default="none", help="(default: none)")
    group.add_argument("--heads", type=count, help="attention heads of gat (default: 4)")


def _add_gist_options(parser: argparse.ArgumentParser, *, several: str) -> None:
    group = parser.add_argument_group("GIST")
    if several:
        group.add_argument(
            "--sub-gcns",
            type=int,
            nargs="+",
            metavar="M",
            help=several,
        )
    else:
        group.add_argument("--sub-gcns", type=int, default=4, metavar="M", help="m; 1 is the baseline (default: 4)")
        group.add_argument(
            "--method",
            dest="trained_by",  # `method` is the clusters'
            choices=METHODS,
            default="gist",
            help="gist, or what it is compared with, on M workers: data parallel (gradients averaged at every step), "
            "local SGD (full models averaged after N steps), an ensemble of M sub-GCNs that are never merged "
            "(default: gist)",
        )
    group.add_argument("--local-steps", type=int, default=20, metavar="N", help="ζ, steps in a round (default: 20)")
    group.add_argument("--epochs", type=int, default=400, metavar="E", help="(default: 400)")
    group.add_argument(
        "--training",
        choices=("split", "each"),
        default="split",
        help="E/m epochs for each sub-GCN, or E (default: split)",
    )
    _add_partition_options(group)
    _add_store_options(group, several=several)


def _add_partition_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--partition-dims",
        type=natural,
        nargs="+",
        metavar="L",
        help="the dimensions d_L that are split into blocks, 0 for the input features (default: every hidden one)",
    )
    group.add_argument(
        "--partition",
        choices=("balanced", "categorical"),
        default="balanced",
        help="how blocks are drawn (default: balanced)",
    )
    group.add_argument(
        "--optimizer-state",
        choices=("reset", "carry"),
        default="reset",
        help="a new optimiser in every round, or moments that travel with the parameters (default: reset)",
    )
    group.add_argument(
        "--runner",
        choices=("in-turn", "fused"),
        default="in-turn",
        help="the sub-GCNs one after another, or all in one pass over each batch (default: in-turn)",
    )


def _add_store_options(group: argparse._ArgumentGroup, *, several: str) -> None:
    if not several:
        group.add_argument(
            "--store",
            choices=("memory", "host", "mapped", "sharded"),
            default="memory",
            help="where Θ is between rounds: on the device; in the host's memory, with one sub-GCN at a time on the "
            "device; in files in DIR, with one at a time in memory; by rows over the ranks (default: memory)",
        )
    group.add_argument(
        "--store-precision",
        choices=("float32", "bf16"),
        default="float32",
        help="of the numbers in the files of mapped (default: float32)",
    )


def _add_sampler_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batches")
    group.add_argument(
        "--sampler",
        choices=SAMPLERS,
        default="full",
        help="what a step sees: the whole graph; a few of its clusters; layers of nodes drawn by importance (LADIES, "
        "FastGCN) or of random neighbours; GraphSAINT's subgraphs by nodes, edges or random walks (default: full)",
    )
    _add_cluster_options(group)
    _add_drawing_options(group)
    group.add_argument(
        "--batches", choices=("shared", "independent"), help="the same for all sub-GCNs, or not (default: shared)"
    )
    group.add_argument(
        "--inductive", action="store_true", help="train on the subgraph of the training nodes; scores are of all"
    )
    group.add_argument(
        "--standardise", action="store_true", help="scale features to mean 0 and deviation 1 over the training nodes"
    )


def _add_cluster_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--clusters", type=int, metavar="C", help="c, how many clusters the graph is cut into")
    add("--clusters-per-batch", type=int, metavar="Q", help="(default: 10)")
    add("--cluster-method", dest="method", choices=CLUSTER_METHODS, help="(default: metis)")
    add(
        "--no-precompute",
        dest="precompute",
        action="store_false",
        default=None,
        help="clusters: the first layer sums over the batch's edges, not over all of the graph's",
    )


def _add_drawing_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--batch-size",
        type=int,
        metavar="B",
        help="output nodes of a batch (default: 512); saint-*: nodes, edges or "
        "walks drawn for one (default: 6000, 4000, 2000)",
    )
    add(
        "--nodes-per-layer",
        type=int,
        nargs="+",
        metavar="S",
        help="ladies, fastgcn: nodes drawn for a layer; one number, or one for each layer (default: 512)",
    )
    add(
        "--row-normalise",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="ladies, fastgcn: scale rows to the sums they have in the graph; without, sums are unbiased (default: do)",
    )
    add(
        "--fanout",
        dest="fanouts",
        type=int,
        nargs="+",
        metavar="K",
        help="neighbor: neighbours drawn for a node; one number, or one for each hop from the output nodes on; "
        "-1: all (default: 10)",
    )
    add("--walk-length", type=int, metavar="H", help="saint-rw: steps of a walk (default: 2)")
    add(
        "--sample-coverage",
        type=int,
        metavar="K",
        help="saint-rw: walks from every node that are counted for its chances, before training (default: 20)",
    )


def _add_optimizer_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("optimiser")
    group.add_argument("--optimizer", choices=("adam", "adamw", "sgd"), default="adam", help="(default: adam)")
    group.add_argument("--lr", type=float, default=0.01, help="learning rate (default: 0.01)")
    group.add_argument("--weight-decay", type=float, default=0.0, metavar="W", help="(default: 0)")
    group.add_argument("--momentum", type=float, default=0.0, help="of sgd (default: 0)")
    group.add_argument(
        "--schedule",
        choices=("constant", "step", "cosine"),
        default="constant",
        help="step divides the rate by 10 at 50 %% and 75 %% of the run (default: constant)",
    )
    group.add_argument(
        "--precision",
        choices=("float32", "bf16"),
        default="float32",
        help="of dense products; parameters are float32 (default: float32)",
    )
    group.add_argument("--clip-norm", type=float, metavar="C", help="largest norm of a sub-GCN's gradient")
    group.add_argument("--patience", type=int, metavar="K", help="stop after K evaluations without a better score")
    group.add_argument("--evaluate-every", type=int, default=1, metavar="K", help="rounds (default: 1)")


def config_of(args: argparse.Namespace, sub_gcns: int, store: str) -> "RunConfig":
    """Return the run that the options describe.

    Args:
        args: what `add_training_options` and the other options of `train` have read.
        sub_gcns: m.
        store: where Θ is.

    Raises:
        InputError: a setting out of range, or options that do not go together.
    """
    from gistgnn.runs.config import ModelConfig, RunConfig
    from gistgnn.runs.run_folder import choose_device
    from gistgnn.settings import Training, make_training

    training = {name: getattr(args, name) for name in Training.__dataclass_fields__}
    make_training(training)  # refuses a bad value before anything is loaded
    if args.heads is not None and args.model != "gat":
        raise InputError(f"heads is given, but the model is {args.model}: add --model gat")
    method = getattr(args, "trained_by", "gist")
    if method in METHODS[1:3] and (args.partition_dims or args.partition != "balanced"):
        raise InputError(f"a partition is given, but the method is {method}, which splits nothing: leave it out")
    heads = {} if args.heads is None else {"heads": args.heads}
    return RunConfig(
        dataset=args.dataset,
        model=ModelConfig(args.model, tuple(args.hidden), args.dropout, args.norm, **heads),
        sub_gcns=sub_gcns,
        method=method,
        partitioned=tuple(args.partition_dims) if args.partition_dims else None,
        partition=args.partition,
        seed=args.seed,
        device=choose_device(args.device),
        training=training,
        sampler=_sampler(args),
        runner=args.runner,
        inductive=args.inductive,
        standardise=args.standardise,
        evaluation=evaluation_of(args),
        store=store,
        store_precision=args.store_precision,
    )


def _sampler(args: argparse.Namespace) -> "Sampling | None":
    from dataclasses import fields

    from gistgnn.sampling import SAMPLINGS

    options = {name: [field.name for field in fields(each)] for name, each in SAMPLINGS.items()}
    every = dict.fromkeys(name for names in options.values() for name in names)
    given = {name: getattr(args, name) for name in every if getattr(args, name) is not None}
    given = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in given.items()}
    for name in given:
        if name not in options.get(args.sampler, []):
            takes = [sampler for sampler, names in options.items() if name in names]
            said = f"{_OPTION.get(name, name)} is given, but the sampler is {args.sampler}"
            raise InputError(f"{said}: add --sampler {' or '.join(takes)}")
    if args.sampler == "clusters" and args.clusters is None:
        raise InputError("the sampler is clusters, but not how many: add --clusters, such as --clusters 50")
    return SAMPLINGS[args.sampler](**given) if args.sampler != "full" else None
