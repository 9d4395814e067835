"""`gistgnn train`: train one model on one graph."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.directory import choose_directory, finished_run
from gistgnn.cli.interrupt import Interrupt
from gistgnn.cli.options import (
    METHODS,
    add_data_options,
    add_device_option,
    add_evaluation_options,
    count,
    evaluation_of,
    natural,
)
from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.graphs import Graph, Standardisation
    from gistgnn.result import Result
    from gistgnn.run import RunConfig
    from gistgnn.sampling import ClusterSampling


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("train", help="train a model on a graph", allow_abbrev=False)
    parser.set_defaults(run=run)
    add_data_options(parser, default="digits")
    _add_model_options(parser)
    _add_gist_options(parser)
    _add_sampler_options(parser)
    _add_optimizer_options(parser)
    add_evaluation_options(parser, default="auto")
    _add_run_options(parser)


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


def _add_gist_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("GIST")
    group.add_argument("--sub-gcns", type=int, default=4, metavar="M", help="m; 1 is the baseline (default: 4)")
    group.add_argument("--local-steps", type=int, default=20, metavar="N", help="ζ, steps in a round (default: 20)")
    group.add_argument("--epochs", type=int, default=400, metavar="E", help="(default: 400)")
    group.add_argument(
        "--training",
        choices=("split", "each"),
        default="split",
        help="E/m epochs for each sub-GCN, or E (default: split)",
    )
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

    group.add_argument(
        "--store",
        choices=("memory", "host", "mapped"),
        default="memory",
        help="where Θ is between rounds: on the device; in the host's memory, with one sub-GCN at a time on the "
        "device; in files in DIR, with one at a time in memory (default: memory)",
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
        choices=("full", "clusters"),
        default="full",
        help="a step sees the whole graph, or a few of its clusters (default: full)",
    )
    group.add_argument("--clusters", type=int, metavar="C", help="c, how many clusters the graph is cut into")
    group.add_argument("--clusters-per-batch", type=int, metavar="Q", help="(default: 10)")
    group.add_argument("--cluster-method", choices=METHODS, help="(default: metis)")
    group.add_argument(
        "--batches", choices=("shared", "independent"), help="the same for all sub-GCNs, or not (default: shared)"
    )
    group.add_argument(
        "--no-precompute",
        dest="precompute",
        action="store_false",
        default=None,
        help="the first layer sums over the batch's edges, not over all of the graph's",
    )
    group.add_argument(
        "--inductive", action="store_true", help="train on the subgraph of the training nodes; scores are of all"
    )
    group.add_argument(
        "--standardise", action="store_true", help="scale features to mean 0 and deviation 1 over the training nodes"
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


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument("--seed", type=natural, default=0, help="(default: 0)")
    add_device_option(group)  # type: ignore[arg-type]  # a group takes options as a parser does
    group.add_argument("--out", type=Path, metavar="DIR", help="where the results go (default: a new folder in runs/)")
    group.add_argument("--overwrite", action="store_true", help="replace the results that DIR holds")
    group.add_argument(
        "--checkpoint-every", type=count, default=10, metavar="K", help="rounds between checkpoints (default: 10)"
    )
    group.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR, if there is one")
    group.add_argument(
        "--json", action="store_true", help="print result.json on standard output, and nothing else there"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs import load
    from gistgnn.monitor import Saving
    from gistgnn.rounds import DivergedError
    from gistgnn.run import CHECKPOINT

    config = _config(args)
    out = args.out = choose_directory(args, config)
    if finished := finished_run(out, config) if args.resume else None:
        _report(finished, out, args.json)
        return 0
    graph = load(args.dataset, args.data_root)
    scale = config.scale(graph)
    graph = scale.graph(graph) if scale else graph
    gist = config.gist(graph, out)
    _warn_of_few_rounds(config)
    with Interrupt() as interrupt:
        saving = Saving(out / CHECKPOINT, args.checkpoint_every, args.resume, config.identity)
        try:
            result = config.fit(gist, graph, stop=lambda: interrupt.asked, saving=saving)
        except DivergedError as error:
            _finish(config, graph, error.result, args, scale, diverged=str(error))
            raise
    if result.interrupted:
        print(f"gistgnn: interrupted; go on with the same command and --out {out} --resume", file=sys.stderr)
        return 130
    _report(_finish(config, graph, result, args, scale), out, args.json)
    return 0


def _config(args: argparse.Namespace) -> "RunConfig":
    from gistgnn.run import ModelConfig, RunConfig, choose_device
    from gistgnn.settings import Training, make_training

    training = {name: getattr(args, name) for name in Training.__dataclass_fields__}
    make_training(training)  # refuses a bad value before anything is loaded
    if args.heads is not None and args.model != "gat":
        raise InputError(f"heads is given, but the model is {args.model}: add --model gat")
    heads = {} if args.heads is None else {"heads": args.heads}
    return RunConfig(
        dataset=args.dataset,
        model=ModelConfig(args.model, tuple(args.hidden), args.dropout, args.norm, **heads),
        sub_gcns=args.sub_gcns,
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
        store=args.store,
        store_precision=args.store_precision,
    )


def _sampler(args: argparse.Namespace) -> "ClusterSampling | None":
    from gistgnn.sampling import ClusterSampling

    options = {"clusters": args.clusters, "clusters_per_batch": args.clusters_per_batch}
    options |= {"method": args.cluster_method, "batches": args.batches, "precompute": args.precompute}
    given = {name: value for name, value in options.items() if value is not None}
    if args.sampler == "clusters":
        if args.clusters is None:
            raise InputError("the sampler is clusters, but not how many: add --clusters, such as --clusters 50")
        return ClusterSampling(**given)
    if given:
        raise InputError(f"{next(iter(given))} is given, but the sampler is full: add --sampler clusters")
    return None


def _warn_of_few_rounds(config: "RunConfig") -> None:
    """Say so where much of Θ would stay untrained: a weight between two split layers is in 1/m of the rounds."""
    settings, m, sampler = config.training, config.sub_gcns, config.sampler
    per_epoch = math.ceil(sampler.clusters / sampler.clusters_per_batch) if sampler else 1
    steps = per_epoch * settings["epochs"] / (m if settings["training"] == "split" else 1)
    rounds = steps / settings["local_steps"]
    between = any(dim + 1 in config.partitioned_dims for dim in config.partitioned_dims)
    if m > 1 and between and rounds < m:
        print(
            f"gistgnn: note: each sub-GCN takes {steps:.0f} steps, {settings['local_steps']} in a round; a weight "
            f"between two split layers is trained in {rounds / m:.2g} rounds on average; raise --epochs or lower "
            "--local-steps",
            file=sys.stderr,
        )


def _finish(
    config: "RunConfig",
    graph: "Graph",
    result: "Result",
    args: argparse.Namespace,
    scale: "Standardisation | None",
    diverged: str | None = None,
) -> dict[str, Any]:
    """Write the run's directory and return its record."""
    from gistgnn.run import result_json, write_run

    record = result_json(config, graph, result, args.data_root)
    if diverged:
        record["diverged"] = diverged
    write_run(args.out, record, result.model, scale)
    return record


def _report(record: dict[str, Any], out: Path, as_json: bool) -> None:
    """Print the result: as JSON, or as a table and where the files are."""
    if as_json:
        print(json.dumps(record, indent=2))
        return
    from gistgnn.cli.tables import print_scores
    from gistgnn.model_files import model_path

    print_scores(
        f"{record['graph']['name']}, {record['config']['model']['name']}, m = {record['config']['sub_gcns']}",
        {
            f"{split} at best validation (round {record['best_round']})": record[split]
            for split in ("validation", "test")
        }
        | {f"{split} at the end": record["last"].get(split) for split in ("validation", "test")},
        record.get("evaluation"),
    )
    print(f"{record['rounds']} rounds, {record['steps']} steps, {record['train_seconds']:.1f} s of training")
    print(f"written: {out / 'result.json'}, {model_path(out)}, {out / 'curves.png'}")
