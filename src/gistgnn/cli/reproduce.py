"""`gistgnn reproduce`: the paper's tables and figures, run again."""

import argparse
import os
import shlex
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from gistgnn.cli import options, values
from gistgnn.cli.process import join_ranks, locked_folder, refuse_torchrun, say, stopping
from gistgnn.errors import printable
from gistgnn.paper.registry import EXPERIMENTS, SCALES, Entry
from gistgnn.theta.registry import STORES

if TYPE_CHECKING:
    from gistgnn.distributed import World
    from gistgnn.paper.experiment import Experiment

COMMON = ("datasets+", "seeds", "epochs")  # options of every experiment, as `Entry` has them

_STORE = "where the parameters lie (default: host, and with one device memory)"
_DEVICE_MEMORY = (
    "a run that takes more of its device, by the plan, is out of memory (default: 32GB; small: "
    "1.75GB)"
)

# The arguments of `add_argument`, by the experiment's attribute. Without a type it is a count.
OPTIONS: dict[str, dict[str, Any]] = {
    "datasets": {"type": str, "metavar": "NAME", "help": "names from `gistgnn datasets`"},
    "seeds": {"type": values.thousand, "metavar": "S", "help": "runs of each row"},
    "epochs": {"metavar": "E", "help": "of each run"},
    "layers": {"metavar": "L", "help": "every L"},
    "widths": {"metavar": "D", "help": "every width"},
    "sub_gcns": {"metavar": "M", "help": "every m"},
    "local_steps": {"metavar": "N", "help": "ζ"},
    "clusters": {"metavar": "C", "help": "c"},
    "clusters_per_batch": {"metavar": "Q", "help": "in a batch"},
    "nodes": {"metavar": "N", "help": "how many nodes of a data set"},
    "models": {"type": str, "choices": ("graphsage", "gat"), "help": "models"},
    "store": {"type": str, "choices": list(STORES), "help": _STORE},
    "device_memory": {"type": values.memory_size, "metavar": "SIZE", "help": _DEVICE_MEMORY},
}


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper again")
    experiments = parser.add_commands("EXPERIMENT")
    for name, entry in EXPERIMENTS.items():
        _add_experiment(experiments, name, entry)


def _add_experiment(experiments: Any, name: str, entry: Entry) -> None:
    parser = options.add_command(experiments, name, _run, entry.help)
    text = (
        "small: under 20 minutes; full: the paper's (default: small); the options below "
        "replace its settings"
    )
    parser.add_argument("--scale", choices=SCALES, default="small", help=text)
    options.add_shared(parser, "--data-root")
    settings = []
    for option in (*COMMON, *entry.options):
        setting = option.removesuffix("+")
        settings.append(setting)
        arguments = {"type": values.count, **OPTIONS[setting]}
        if option.endswith("+"):
            arguments["nargs"] = "+"
        parser.add_argument(f"--{setting.replace('_', '-')}", **arguments)
    # torchrun may restart it: it always resumes.
    parser.set_defaults(experiment=name, settings=settings, resume=True)
    if entry.devices:
        options.add_shared(parser, "--device")
    options.add_shared(parser, "--out", default=Path("reproduce") / name)
    if entry.ranks:
        options.add_shared(parser, *options.RANKS)


def _run(args: argparse.Namespace) -> int:
    from gistgnn.distributed.agreement import SAME_SETTINGS, require_same

    if not EXPERIMENTS[args.experiment].ranks:
        on_ranks = ", ".join(name for name, entry in EXPERIMENTS.items() if entry.ranks)
        refuse_torchrun(f"{args.experiment} trains", f"; torchrun is for {on_ranks}")
    experiment = _experiment(args)
    with join_ranks(args, experiment.device) as ranks, ExitStack() as folder:
        settings = {name: value for name, value in vars(experiment).items() if name != "device"}
        require_same(ranks, {SAME_SETTINGS: settings})
        ranks.lead(lambda: str(folder.enter_context(locked_folder(args.out))))
        if ranks.is_distributed and (number := _train_on_ranks(experiment, args, ranks)):
            return 128 + number
        ranks.lead(lambda: _show(experiment, args, ranks))
    return 0


def _experiment(args: argparse.Namespace) -> "Experiment":
    from gistgnn.runs.run_folder import choose_device

    entry = EXPERIMENTS[args.experiment]
    kind: type[Experiment] = resolve_name(f"gistgnn.paper.{entry.location}")
    settings = {}
    for setting in args.settings:
        value = getattr(args, setting)
        settings[setting] = tuple(value) if isinstance(value, list) else value
    device = choose_device(args.device) if entry.devices else "cpu"
    return kind.at(args.experiment, args.scale, device, **settings)


def _train_on_ranks(experiment: "Experiment", args: argparse.Namespace, ranks: "World") -> int:
    """Train what is missing; return the number of the signal that has stopped it, or 0."""
    with stopping(args.grace) as stop:
        if experiment.train_on_ranks(ranks, args.out, args.data_root, stop):
            return 0
        number = max(ranks.gather(stop.number or 0))
    say("interrupted; resume with the same command")
    return number or signal.SIGINT


def _show(experiment: "Experiment", args: argparse.Namespace, ranks: "World") -> None:
    """Write the results, and print their table. In one process, train the runs that are missing."""
    from gistgnn.compare import RunStore
    from gistgnn.paper.experiment import RUNS
    from gistgnn.utils.console import print_table

    program = "gistgnn"
    if ranks.is_distributed:
        ranks_here = os.environ.get("LOCAL_WORLD_SIZE", ranks.count)
        program = f"torchrun --nproc-per-node {ranks_here} -m gistgnn"
    command = f"{program} {shlex.join(sys.argv[1:])}"
    store = RunStore(args.out / RUNS, args.data_root, trains=not ranks.is_distributed)
    tables = experiment.reproduce(args.out, store, command)
    print(experiment.title)
    for table in tables:
        print_table("", table.columns, table.rows, left=table.columns)
    print(
        f"written: {printable(args.out / f'{experiment.name}.md')}, "
        f"{printable(args.out / 'report.html')}"
    )
