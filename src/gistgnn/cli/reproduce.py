"""`gistgnn reproduce`: the paper's tables and figures, run again."""

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from gistgnn.cli.options import add_device_option, add_folder_option, count, gibibytes, memory_size
from gistgnn.cli.training_options import store_name
from gistgnn.paper.registry import EXPERIMENTS, SCALES, Entry
from gistgnn.theta.registry import STORES

COMMON = ("datasets", "seeds", "epochs")

# The flag of each setting, and the arguments for argparse. The destination is the experiment's attribute.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "datasets": ("--datasets", {"nargs": "+", "metavar": "NAME", "help": "names from `gistgnn datasets`"}),
    "seeds": ("--seeds", {"type": count, "metavar": "S", "help": "runs of each row"}),
    "epochs": ("--epochs", {"type": count, "metavar": "E", "help": "of each run"}),
    "layers": ("--layers", {"type": count, "nargs": "+", "metavar": "L", "help": "every L"}),
    "widths": ("--widths", {"type": count, "nargs": "+", "metavar": "D", "help": "every width"}),
    "sub_gcns": ("--sub-gcns", {"type": count, "nargs": "+", "metavar": "M", "help": "every m"}),
    "zetas": ("--local-steps", {"type": count, "nargs": "+", "metavar": "N", "help": "every ζ"}),
    "local_steps": ("--local-steps", {"type": count, "metavar": "N", "help": "ζ"}),
    "clusters": ("--clusters", {"type": count, "metavar": "C", "help": "c"}),
    "clusters_per_batch": ("--clusters-per-batch", {"type": count, "metavar": "Q", "help": "clusters in a batch"}),
    "nodes": ("--nodes", {"type": count, "metavar": "N", "help": "how many nodes of a data set"}),
    "models": (
        "--models",
        {"nargs": "+", "choices": ("graphsage", "gat"), "dest": "models_of", "help": "which models"},
    ),
    "store": (
        "--store",
        {
            "type": store_name,
            "choices": [name for name, place in STORES.items() if place.alone],
            "help": "where the parameters lie (default: memory)",
        },
    ),
    "device_memory": (
        "--device-memory",
        {
            "type": memory_size,
            "metavar": "SIZE",
            "help": "a run that takes more of its device, by the plan, is out of memory (default: 32GB; at the small "
            "scale 1.75GB)",
        },
    ),
    "memory": (
        "--memory",
        {"type": gibibytes, "metavar": "GIB", "dest": "device_memory", "help": "the older name of --device-memory"},
    ),
}


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper again", allow_abbrev=False)
    experiments = parser.add_subparsers(metavar="EXPERIMENT", required=True, parser_class=type(parser))
    for name, entry in EXPERIMENTS.items():
        _add_options(experiments.add_parser(name, help=entry.help, allow_abbrev=False), name, entry)


def _add_options(parser: argparse.ArgumentParser, name: str, entry: Entry) -> None:
    add = parser.add_argument
    add(
        "--scale",
        choices=SCALES,
        default="small",
        help="small: under 20 minutes on an ordinary machine; full: the paper's setting (default: small); the options "
        "below replace the scale's settings",
    )
    add("--data-root", default="data", metavar="DIR", help="(default: data)")
    options = [OPTIONS[option] for option in (*COMMON, *entry.options) if option in OPTIONS]
    settings = [add(flag, **arguments).dest for flag, arguments in options]
    if "jobs" in entry.options:
        add("--jobs", type=count, default=1, help="runs at the same time, one thread each (default: 1)")
    if entry.devices:
        add_device_option(parser)
    add(
        "--rehearse",
        action="store_true",
        help="do not train: try every setting with two steps and one evaluation, on synthetic graphs in place of the "
        "data; nothing is kept",
    )
    add_folder_option(parser, Path("reproduce") / name)
    parser.set_defaults(run=run, experiment=name, settings=settings, jobs=1)


def run(args: argparse.Namespace) -> int:
    """Run `gistgnn reproduce EXPERIMENT`."""
    from rich.console import Console

    from gistgnn.compare import tables
    from gistgnn.io.whole_files import check_writable
    from gistgnn.paper.experiment import Experiment
    from gistgnn.runs.run_folder import choose_device

    check_writable(args.out)
    entry = EXPERIMENTS[args.experiment]
    kind: type[Experiment] = resolve_name(f"gistgnn.paper.{entry.home}")
    values = {setting: getattr(args, setting) for setting in args.settings}
    settings = {setting: tuple(value) if isinstance(value, list) else value for setting, value in values.items()}
    experiment = kind.at(args.scale, choose_device(args.device) if entry.devices else "cpu", **settings)
    command = shlex.join(["gistgnn", *sys.argv[1:]])
    if args.rehearse:
        from gistgnn.paper.rehearsal import rehearse

        print(rehearse(experiment, args.data_root, command, partial(print, flush=True)))
        return 0
    outcome = experiment.reproduce(args.out, args.data_root, args.jobs, command)
    Console().print(tables.as_table(experiment.title, outcome.columns, outcome.rows, outcome.centred))
    for verdict in outcome.verdicts:
        holds = {True: "holds", False: "does not hold", None: "not shown"}[verdict.holds]
        print(f"{holds}: {verdict.claim} ({verdict.measured})")
    print(f"written: {args.out / f'{experiment.name}.md'}, {args.out / 'report.html'}")
    return 0
