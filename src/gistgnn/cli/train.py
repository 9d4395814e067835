"""`gistgnn train`: train one model on one graph."""

import argparse
import json
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.few_rounds import warn_of_few_rounds
from gistgnn.cli.interrupt import Interrupt
from gistgnn.cli.join_ranks import joined, leads
from gistgnn.cli.options import (
    add_data_options,
    add_device_option,
    add_evaluation_options,
    add_memory_option,
    count,
    natural,
    seconds,
)
from gistgnn.cli.run_directory import choose_directory, finished_run
from gistgnn.cli.training_options import add_training_options, config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gistgnn.distributed import World
    from gistgnn.graphs import Graph, Standardisation
    from gistgnn.runs.config import RunConfig
    from gistgnn.session.result import Result
    from gistgnn.session.saving import Saving


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("train", help="train a model on a graph", allow_abbrev=False)
    parser.set_defaults(run=run)
    add_data_options(parser, default="digits")
    add_training_options(parser)
    add_evaluation_options(parser, default="auto")
    _add_run_options(parser)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument("--seed", type=natural, default=0, help="(default: 0)")
    add_device_option(group)  # type: ignore[arg-type]  # a group takes options as a parser does
    add_memory_option(group)  # type: ignore[arg-type]
    group.add_argument("--out", type=Path, metavar="DIR", help="where the results go (default: a new folder in runs/)")
    group.add_argument("--overwrite", action="store_true", help="replace the results that DIR holds")
    group.add_argument(
        "--checkpoint-every", type=count, default=10, metavar="K", help="rounds between checkpoints (default: 10)"
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        default=1800.0,
        metavar="SECONDS",
        help="how long another rank is waited for, where torchrun has started several (default: 1800)",
    )
    group.add_argument(
        "--interface",
        metavar="NAME",
        help="the network interface, such as eth0, that ranks listen on and reach each other through",
    )
    group.add_argument("--resume", action="store_true", help="go on from the last checkpoint in DIR, if there is one")
    group.add_argument(
        "--tensorboard", action="store_true", help="write the history to DIR/tensorboard as well, as it comes"
    )
    group.add_argument(
        "--json", action="store_true", help="print result.json on standard output, and nothing else there"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    config = config_of(args, args.sub_gcns, args.store)
    with joined(args, config.device) as ranks:
        return _train(args, config, ranks)


def _train(args: argparse.Namespace, config: "RunConfig", ranks: "World") -> int:
    """Run the command on this rank, or in the only process."""
    from gistgnn.errors import DivergedError
    from gistgnn.planning import GraphSizes
    from gistgnn.session.tensorboard import require_tensorboard

    if args.tensorboard:
        ranks.lead(require_tensorboard)
    out = args.out = Path(ranks.lead(lambda: str(choose_directory(args, config))))
    if finished := ranks.lead(lambda: finished_run(out, config)) if args.resume else None:
        _report(finished, out, args.json)
        return 0
    graph, scale = _load(args, config, ranks)
    gist = config.trainer(graph.num_features, graph.num_classes, out, ranks)
    if leads():
        warn_of_few_rounds(config, GraphSizes.of_graph(graph))
    with Interrupt() as interrupt, _events(args) as report:
        hooks = {"stop": lambda: interrupt.asked, "saving": _saving(args, config), "progress": leads()}
        hooks["report"] = report
        try:
            result = config.fit(gist, graph, **hooks)
        except DivergedError as error:
            found, why = error.result, str(error)
            gist.theta.read_on_rank_0(lambda: _finish(config, graph, found, args, scale, diverged=why))
            raise
    if result.interrupted:
        if leads():
            print(f"gistgnn: interrupted; go on with the same command and --out {args.out} --resume", file=sys.stderr)
        return 130
    _report(gist.theta.read_on_rank_0(lambda: _finish(config, graph, result, args, scale)), out, args.json)
    return 0


def _load(args: argparse.Namespace, config: "RunConfig", ranks: "World") -> "tuple[Graph, Standardisation | None]":
    """The graph, and how its features were scaled (on rank 0, which writes it); a run that cannot fit is refused."""
    from gistgnn.distributed import load_once
    from gistgnn.graphs import find, load
    from gistgnn.planning import GraphSizes, Resources, require_room

    resources = None if ranks.several else Resources.here(config.device, args.out, args.memory)
    if resources and (known := find(args.dataset)):
        require_room(config, GraphSizes.of_dataset(known), resources)
    scale: Standardisation | None = None

    def loaded() -> "Graph":
        nonlocal scale
        graph = load(args.dataset, args.data_root)
        if resources and not known:
            require_room(config, GraphSizes.of_graph(graph), resources)
        scale = config.scale(graph)
        return scale.graph(graph) if scale else graph

    return load_once(ranks, loaded), scale


@contextmanager
def _events(args: argparse.Namespace) -> "Iterator[Callable[[dict[str, Any]], None]]":
    """What is called with every entry of the history: it writes TensorBoard's events, where they are wanted."""
    if not (args.tensorboard and leads()):
        yield lambda _: None
        return
    from gistgnn.session.tensorboard import FOLDER, Events

    with closing(Events(args.out / FOLDER)) as events:
        yield events


def _saving(args: argparse.Namespace, config: "RunConfig") -> "Saving":
    """Where the run is saved."""
    from gistgnn.runs.run_folder import CHECKPOINTS
    from gistgnn.session.saving import Saving

    return Saving(args.out / CHECKPOINTS, args.checkpoint_every, args.resume, config.goes_on_from)


def _finish(
    config: "RunConfig",
    graph: "Graph",
    result: "Result",
    args: argparse.Namespace,
    scale: "Standardisation | None",
    diverged: str | None = None,
) -> dict[str, Any]:
    """Write the run's directory and return its record."""
    from gistgnn.runs.run_folder import result_json, write_run

    record = result_json(config, graph, result, args.data_root)
    if diverged:
        record["diverged"] = diverged
    write_run(args.out, record, result.model, scale)
    return record


def _report(record: dict[str, Any], out: Path, as_json: bool) -> None:
    """Print the result: as JSON, or as a table and where the files are; on rank 0 alone."""
    if not leads():
        return
    if as_json:
        print(json.dumps(record, indent=2))
        return
    from gistgnn.cli.score_table import print_scores
    from gistgnn.io.models import model_path

    config = record["config"]
    method = "" if config.get("method", "gist") == "gist" else f"{config['method']}, "
    together = config.get("method") == "ensemble"  # it has its members at their best, at its end
    best = "each member at its best" if together else f"at best validation (round {record['best_round']})"
    print_scores(
        f"{record['graph']['name']}, {config['model']['name']}, {method}m = {config['sub_gcns']}",
        {f"{split}, {best}": record[split] for split in ("validation", "test")}
        | {f"{split} at the end": None if together else record["last"].get(split) for split in ("validation", "test")},
        record.get("evaluation"),
    )
    print(f"{record['rounds']} rounds, {record['steps']} steps, {record['train_seconds']:.1f} s of training")
    print(f"written: {out / 'result.json'}, {model_path(out)}, {out / 'curves.png'}, {out / 'report.html'}")
