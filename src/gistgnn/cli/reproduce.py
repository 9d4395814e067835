"""`gistgnn reproduce`: the paper's tables and figures, run again."""

import argparse
import importlib
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gistgnn.cli.options import add_device_option, count, gibibytes

SCALES = ("small", "full")  # as gistgnn.paper.experiment has them, whose import would take seconds


@dataclass(frozen=True)
class Entry:
    """An experiment on the command line.

    Args:
        home: its module in `gistgnn.paper`, and its class there.
        help: what it shows.
        options: those of `OPTIONS` that it takes beside the common ones.
        devices: whether it runs elsewhere than on the CPU.
    """

    home: str
    help: str
    options: tuple[str, ...] = ()
    devices: bool = True


EXPERIMENTS = {
    "table1": Entry("table1:Table1", "which dimensions to partition: GCN 256-256 on small graphs", ("jobs",)),
    "depth-width": Entry(
        "figure4_depth_width:DepthWidth", "Figure 4: depth and width on one device", ("layers", "widths", "jobs")
    ),
    "local-iterations": Entry(
        "figure5_local_iterations:LocalIterations",
        "Figure 5: how often sub-GCNs are merged",
        ("zetas", "sub_gcns", "jobs"),
    ),
    "reddit": Entry(
        "table2_large_graphs:Reddit",
        "Table 2: GraphSAGE and GAT on Reddit",
        ("layers", "local_steps", "clusters", "models"),
    ),
    "amazon2m": Entry(
        "table2_large_graphs:Amazon2M",
        "Table 2: GraphSAGE on Amazon2M",
        ("layers", "widths", "local_steps", "clusters"),
    ),
    "ultrawide": Entry(
        "table3_ultrawide:UltraWide",
        "Table 3: widths that do not fit on one device",
        ("layers", "widths", "sub_gcns", "local_steps", "clusters", "memory"),
    ),
    "ladies": Entry("table4_ladies:Ladies", "Table 4: GIST with layer sampling", ("layers", "local_steps")),
    "local-sgd": Entry("table6_local_sgd:LocalSgdTable", "Table 5: GIST against local SGD", ("local_steps",)),
    "ensemble": Entry("table7_ensemble:EnsembleTable", "Table 6: GIST against ensembles of sub-GCNs", ("local_steps",)),
    "theory": Entry(
        "theory_bounds:Theory",
        "Section 4: training against the bounds, float64 on the CPU",
        ("widths", "sub_gcns", "zetas", "nodes"),
        devices=False,
    ),
}

# The flag, the attribute of the experiment, and what argparse is told.
OPTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "layers": ("--layers", "layers", {"type": count, "nargs": "+", "metavar": "L", "help": "every L"}),
    "widths": ("--widths", "widths", {"type": count, "nargs": "+", "metavar": "D", "help": "every width"}),
    "sub_gcns": ("--sub-gcns", "sub_gcns", {"type": count, "nargs": "+", "metavar": "M", "help": "every m"}),
    "zetas": ("--local-steps", "local_steps", {"type": count, "nargs": "+", "metavar": "N", "help": "every ζ"}),
    "local_steps": ("--local-steps", "local_steps", {"type": count, "metavar": "N", "help": "ζ"}),
    "clusters": ("--clusters", "clusters", {"type": count, "metavar": "C", "help": "c, of 10 in a batch"}),
    "nodes": ("--nodes", "nodes", {"type": count, "metavar": "N", "help": "of a data set, this many nodes"}),
    "models": (
        "--models",
        "models_of",
        {"nargs": "+", "choices": ("graphsage", "gat"), "help": "of the two"},
    ),
    "memory": ("--memory", "memory", {"type": gibibytes, "metavar": "GIB", "help": "what a run may take"}),
}


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper again", allow_abbrev=False)
    experiments = parser.add_subparsers(metavar="EXPERIMENT", required=True, parser_class=type(parser))
    for name, entry in EXPERIMENTS.items():
        _add(experiments, name, entry)


def _add(experiments: Any, name: str, entry: Entry) -> None:
    parser = experiments.add_parser(name, help=entry.help, allow_abbrev=False)
    parser.set_defaults(run=run, experiment=name)
    add = parser.add_argument
    add(
        "--scale",
        choices=SCALES,
        default="small",
        help="small: under 20 minutes on an ordinary machine; full: the paper's setting (default: small); what is not "
        "given below is the scale's",
    )
    add("--data-root", default="data", metavar="DIR", help="(default: data)")
    add("--datasets", nargs="+", metavar="NAME", help="names from `gistgnn datasets`")
    add("--seeds", type=count, metavar="S", help="runs of each row")
    add("--epochs", type=count, metavar="E", help="of each run")
    for option in entry.options:
        if option in OPTIONS:
            flag, attribute, said = OPTIONS[option]
            add(flag, dest=attribute, **said)
    if "jobs" in entry.options:
        add("--jobs", type=count, default=1, help="runs at the same time, one thread each (default: 1)")
    if entry.devices:
        add_device_option(parser)
    add(
        "--out",
        type=Path,
        default=Path("reproduce") / name,
        metavar="DIR",
        help="where finished runs, the table and the report are kept; run again with the same DIR to go on "
        f"(default: reproduce/{name})",
    )


def run(args: argparse.Namespace) -> int:
    """Run `gistgnn reproduce EXPERIMENT`."""
    from rich.console import Console

    from gistgnn.compare import tables
    from gistgnn.io.whole_files import check_writable
    from gistgnn.paper.experiment import Experiment
    from gistgnn.runs.run_folder import choose_device

    check_writable(args.out)
    entry = EXPERIMENTS[args.experiment]
    module, name = entry.home.split(":")
    kind: type[Experiment] = getattr(importlib.import_module(f"gistgnn.paper.{module}"), name)
    own = ["datasets", "seeds", "epochs", *(OPTIONS[each][1] for each in entry.options if each in OPTIONS)]
    given = {each: getattr(args, each) for each in own}
    given = {each: tuple(value) if isinstance(value, list) else value for each, value in given.items()}
    experiment = kind.at(args.scale, choose_device(args.device) if entry.devices else "cpu", **given)
    command = shlex.join(["gistgnn", *sys.argv[1:]])
    outcome = experiment.reproduce(args.out, args.data_root, getattr(args, "jobs", 1), command)
    Console().print(tables.as_table(experiment.title, outcome.columns, outcome.rows, outcome.centred))
    for verdict in outcome.verdicts:
        said = {True: "holds", False: "does not hold", None: "not shown"}[verdict.holds]
        print(f"{said}: {verdict.claim} ({verdict.measured})")
    print(f"written: {args.out / f'{experiment.name}.md'}, {args.out / 'report.html'}")
    return 0
