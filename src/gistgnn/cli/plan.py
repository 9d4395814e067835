"""`gistgnn plan`: what a run would take of memory, disk and time, for several m and stores of the parameters."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import (
    add_data_options,
    add_device_option,
    add_evaluation_options,
    add_memory_option,
    bits,
    count,
    milliseconds,
    natural,
)
from gistgnn.cli.training_options import add_training_options, config_of
from gistgnn.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from gistgnn.planning import Plan, Spread


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("plan", help="say what training would take, and which m fit", allow_abbrev=False)
    parser.set_defaults(run=run)
    add_data_options(parser, default="digits")
    add_training_options(parser, several="every m to plan for (default: 1 2 4 8 16, as far as the widths allow)")
    add_evaluation_options(parser, default="auto")
    group = parser.add_argument_group("plan")
    group.add_argument(
        "--store",
        choices=("memory", "host", "mapped"),
        nargs="+",
        default=["memory", "mapped"],
        help="where the parameters lie: in memory, or in files of which one sub-GCN at a time is in memory "
        "(default: both)",
    )
    add_memory_option(group)
    group.add_argument("--out", type=Path, metavar="DIR", help="where files would go: its disk is looked at")
    group.add_argument("--no-measure", dest="timed", action="store_false", help="no times: do not measure this machine")
    group.add_argument(
        "--ranks", type=count, nargs="+", metavar="W", help="project the run on W ranks, each a machine like this one"
    )
    group.add_argument(
        "--bandwidth", type=bits, default=bits("10Gbit"), help="of a rank's network, for --ranks (default: 10Gbit)"
    )
    group.add_argument(
        "--latency", type=milliseconds, default=0.0, metavar="MS", help="of a message, in milliseconds (default: 0)"
    )
    group.add_argument("--seed", type=natural, default=0, help="(default: 0)")
    add_device_option(group)
    group.add_argument("--json", action="store_true", help="print JSON on standard output, and nothing else there")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.graphs import find, load
    from gistgnn.planning import GraphSizes, Network, Resources, make_plan, spread
    from gistgnn.utils.console import spinner

    if args.ranks and not args.timed:
        raise InputError("--ranks is given with --no-measure, but its times are of this machine: leave one of them out")
    config = config_of(args, sub_gcns=1, store="memory")
    resources = Resources.here(config.device, args.out, args.memory)
    known = find(args.dataset)
    sizes = GraphSizes.of_dataset(known) if known else GraphSizes.of_graph(load(args.dataset, args.data_root))
    with spinner("planning", shown=not args.json):
        plan = make_plan(config, sizes, resources, args.sub_gcns, args.store, timed=args.timed)
        network = Network(args.bandwidth, args.latency)
        spreads = spread(config, sizes, args.ranks, network, args.sub_gcns) if args.ranks else []
    if args.json:
        ranks = {"ranks": [{**asdict(each), "round": each.round} for each in spreads]} if spreads else {}
        print(json.dumps({**plan.as_dict(), **ranks}, indent=2))
    else:
        _print(plan, spreads)
    return 0


def _print(plan: "Plan", spreads: "list[Spread]") -> None:
    from rich.console import Console

    from gistgnn.planning.forecast import said

    graph, batch, there = plan.graph, plan.batch, plan.resources
    print(f"{graph.name}: {graph.nodes:,} nodes, {graph.edges:,} edges")
    print(f"a step's batch: {batch.nodes:,} nodes, about {batch.edges:,} edges")
    print(f"the full model: {plan.parameters:,} parameters, {said(plan.theta)}")
    gpu = "" if there.gpu is None else f", {said(there.gpu)} on the GPU"
    print(f"available: {said(there.host)} of memory{gpu}, {said(there.disk)} on the disk\n")
    Console().print(_memory_table(plan))
    print()
    Console().print(_time_table(plan))
    print(f"\n{plan.advice}")
    if spreads:
        print()
        Console().print(_ranks_table(spreads))


def _memory_table(plan: "Plan") -> "Table":
    from gistgnn.planning.forecast import said

    columns = ("", "sub-GCN", "trained", "step", "eval.", "peak", "disk")
    table = _table("memory (trained: with gradients and optimiser)", columns)
    for option in plan.options:
        sizes = (option.slice, option.training, option.activations, option.evaluation)
        peak = max(size for place, size in option.peaks.items() if place != "disk")
        shown = map(said, (*sizes, peak, option.peaks["disk"]))
        table.add_row(f"{option.sub_gcns}", option.store, "fits" if option.fits else "too large", *shown)
    return table


def _time_table(plan: "Plan") -> "Table":
    from gistgnn.planning.forecast import said

    columns = ("one moves", "all move", "data par.", "s/step", "s/round", "s/epoch", "s/eval.")
    table = _table("a round's traffic with Θ; time, an estimate", columns)
    for option in plan.options:
        moved = map(said, (option.moved, option.moved_by_all, option.data_parallel))
        times = option.seconds
        shown = (times.step, times.round, times.epoch, times.evaluation) if times else ()
        table.add_row(f"{option.sub_gcns}", option.store, *moved, *(f"{value:.2g}" for value in shown))
    return table


def _ranks_table(spreads: "list[Spread]") -> "Table":
    from rich.table import Table

    from gistgnn.planning.forecast import said

    title = (
        "on ranks, the parameters sharded (an estimate): bytes and seconds of a round, times sooner to an epoch's end"
    )
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in (
        "ranks",
        "m",
        "holds",
        "sends",
        "s train",
        "s send",
        "vs 1 rank",
        "vs m=1",
        "s data par.",
        "s local SGD",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for each in spreads:
        times = (each.training, each.exchange, each.data_parallel, each.local_sgd)
        train, send, parallel, local = (f"{value:.2g}" if value < 100 else f"{value:,.0f}" for value in times)
        gains = (f"{value:,.3g}x" if value < 1000 else f"{value:,.0f}x" for value in (each.speedup, each.over_baseline))
        sizes = (said(each.theta), said(round(each.costs.gist)))
        table.add_row(f"{each.ranks}", f"{each.sub_gcns}", *sizes, train, send, *gains, parallel, local)
    return table


def _table(title: str, columns: tuple[str, ...]) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("m", justify="right")
    table.add_column("store", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
