"""`gistgnn reproduce`: the paper's tables and figures, run again."""

import argparse
import os
import shlex
import signal
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from gistgnn.cli import options
from gistgnn.cli.options import Parser, add_command
from gistgnn.cli.process import join_ranks, own_directory, refuse_torchrun, say, stopping
from gistgnn.errors import printable
from gistgnn.paper.registry import EXPERIMENTS, SCALES, Entry
from gistgnn.theta.registry import STORES

if TYPE_CHECKING:
    from gistgnn.distributed import World
    from gistgnn.paper.experiment import Experiment

COMMON = ("datasets", "seeds", "epochs")

_ALONE = [name for name, place in STORES.items() if not place.shared]
_DEVICE_MEMORY = "a run that takes more of its device, by the plan, is out of memory (default: 32GB; small: 1.75GB)"


def _counts(flag: str, metavar: str, text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return flag, {"type": options.count, "metavar": metavar, "help": text, **more}


_EVERY = {"nargs": "+"}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {  # by the experiment's attribute: the flag, and what argparse takes
    "datasets": ("--datasets", {"nargs": "+", "metavar": "NAME", "help": "names from `gistgnn datasets`"}),
    "seeds": _counts("--seeds", "S", "runs of each row", type=options.thousand),
    "epochs": _counts("--epochs", "E", "of each run"),
    "layers": _counts("--layers", "L", "every L", **_EVERY),
    "widths": _counts("--widths", "D", "every width", **_EVERY),
    "sub_gcns": _counts("--sub-gcns", "M", "every m", **_EVERY),
    "zetas": _counts("--local-steps", "N", "every ζ", **_EVERY),
    "local_steps": _counts("--local-steps", "N", "ζ"),
    "clusters": _counts("--clusters", "C", "c"),
    "clusters_per_batch": _counts("--clusters-per-batch", "Q", "in a batch"),
    "nodes": _counts("--nodes", "N", "how many nodes of a data set"),
    "models": ("--models", {"nargs": "+", "choices": ("graphsage", "gat"), "dest": "models_of", "help": "models"}),
    "store": ("--store", {"choices": _ALONE, "help": "where the parameters lie (default: memory)"}),
    "device_memory": ("--device-memory", {"type": options.memory_size, "metavar": "SIZE", "help": _DEVICE_MEMORY}),
}


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper again")
    experiments = parser.add_subparsers(metavar="EXPERIMENT", required=True, parser_class=Parser)
    for name, entry in EXPERIMENTS.items():
        _add_options(add_command(experiments, name, run, entry.help), name, entry)


def _add_options(parser: Parser, name: str, entry: Entry) -> None:
    add = parser.add_argument
    text = "small: under 20 minutes on an ordinary machine; full: the paper's setting (default: small); the options "
    add("--scale", choices=SCALES, default="small", help=f"{text}below replace the scale's settings")
    options.add_data_root(parser)
    own = [OPTIONS[option] for option in (*COMMON, *entry.options) if option in OPTIONS]
    settings = [add(flag, **arguments).dest for flag, arguments in own]
    # torchrun may restart it: it always resumes
    parser.set_defaults(experiment=name, settings=settings, jobs=1, resume=True)
    if "jobs" in entry.options:
        add("--jobs", type=options.thousand, default=1, help="runs at the same time, one thread each (default: 1)")
    if entry.devices:
        options.add_device_option(parser)
    text = "do not train: try every setting with two steps and one evaluation, on synthetic graphs in place of the data"
    add("--rehearse", action="store_true", help=f"{text}; nothing is kept")
    options.add_folder_option(parser, Path("reproduce") / name)
    if entry.ranks:
        options.add_ranks_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run `gistgnn reproduce EXPERIMENT`."""
    from gistgnn.distributed.agreement import SAME_SETTINGS, require_same

    if args.rehearse:
        refuse_torchrun("--rehearse tries every setting")
    if not EXPERIMENTS[args.experiment].ranks:
        known = ", ".join(name for name, entry in EXPERIMENTS.items() if entry.ranks)
        refuse_torchrun(f"{args.experiment} trains", f"; torchrun is for {known}")
    experiment = _experiment(args)
    if args.rehearse:
        from gistgnn.paper.rehearsal import rehearse

        command, report = shlex.join(["gistgnn", *sys.argv[1:]]), partial(print, flush=True)
        with own_directory(args.out):
            print(rehearse(experiment, args.data_root, command, report))
        return 0
    with join_ranks(args, experiment.device) as ranks, ExitStack() as folder:
        settings = {name: value for name, value in vars(experiment).items() if name != "device"}
        require_same(ranks, {SAME_SETTINGS: {"experiment": experiment.name, **settings}})
        ranks.lead(lambda: str(folder.enter_context(own_directory(args.out))))
        if ranks.several and (number := _train_on_ranks(experiment, args, ranks)):
            return 128 + number
        ranks.lead(lambda: _show(experiment, args, ranks))
    return 0


def _experiment(args: argparse.Namespace) -> "Experiment":
    from gistgnn.runs.run_folder import choose_device

    entry = EXPERIMENTS[args.experiment]
    kind: type[Experiment] = resolve_name(f"gistgnn.paper.{entry.home}")
    values = {setting: getattr(args, setting) for setting in args.settings}
    settings = {setting: tuple(value) if isinstance(value, list) else value for setting, value in values.items()}
    return kind.at(args.scale, choose_device(args.device) if entry.devices else "cpu", **settings)


def _train_on_ranks(experiment: "Experiment", args: argparse.Namespace, ranks: "World") -> int:
    """Train what is missing; return the number of the signal that has stopped it, or 0."""
    from gistgnn.paper.large_graphs import GroupedExperiment

    assert isinstance(experiment, GroupedExperiment)
    with stopping(args.grace) as stop:
        if experiment.train_on_ranks(ranks, args.out, args.data_root, stop):
            return 0
        number = max(ranks.gather(stop.number or 0))
    say("interrupted; resume with the same command")
    return number or signal.SIGINT


def _show(experiment: "Experiment", args: argparse.Namespace, ranks: "World") -> None:
    """Write the results, and print their table. In one process, train the runs that are missing."""
    from gistgnn.utils.console import print_table

    here = os.environ.get("LOCAL_WORLD_SIZE", ranks.count)  # ranks on this machine
    program = f"torchrun --nproc-per-node {here} -m gistgnn" if ranks.several else "gistgnn"
    command = f"{program} {shlex.join(sys.argv[1:])}"
    outcome = experiment.reproduce(args.out, args.data_root, args.jobs, command, trains=not ranks.several)
    print_table(experiment.title, outcome.columns, outcome.rows, left=outcome.columns)
    for verdict in outcome.verdicts:
        holds = {True: "holds", False: "does not hold", None: "not shown"}[verdict.holds]
        print(f"{holds}: {verdict.claim} ({verdict.measured})")
    print(f"written: {printable(args.out / f'{experiment.name}.md')}, {printable(args.out / 'report.html')}")
