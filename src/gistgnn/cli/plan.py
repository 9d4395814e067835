"""`gistgnn plan`: what a run would take of memory, disk and time, for several m or phases; what a budget chooses."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli import options
from gistgnn.cli.training_options import add_training_options, config_from_args, given_sub_gcns, graph_of, sizes_of
from gistgnn.defaults import chosen_epochs
from gistgnn.errors import InputError
from gistgnn.runs.config import RunConfig
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import duration, rough_duration, size

if TYPE_CHECKING:
    from gistgnn.estimate import Option, Plan

_TIMES = ("step", "round", "epoch", "evaluation", "total")
_MEMORY = "memory (trained: with gradients and optimiser)"


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = options.add_command(
        commands, "plan", _run, "say what training would take, and which m fit",
        description="Say what memory, disk and time a run would take for several m, and which m to choose. A few "
        "rounds of every m are timed on a random graph; nothing is kept.",
        example="gistgnn plan --dataset ogbn-arxiv --hidden 4096 4096 --sampler clusters --clusters 100",
        common=(*options.MOST_USED, "--budget", "--store", "--memory", "--json"),
    )  # fmt: skip
    add_training_options(parser, several="every m to plan for (default: 1 2 4 8 16, as far as the widths allow)")
    group = parser.add_argument_group("plan")
    add = group.add_argument
    default, text = ["memory", "disk"], "where the parameters lie (default: memory disk)"
    add("--store", choices=list(STORES), nargs="+", default=default, help=text)
    text = "plan for W ranks of torchrun on one machine; sizes are a rank's, and there are no times"
    add("--ranks", type=options.count, default=1, metavar="W", help=text)
    options.add_shared(group, "--memory")
    add("--out", type=Path, metavar="DIR", help="where the run's files would go: the room on that disk is compared")
    add("--no-measure", dest="timed", action="store_false", help="no times: train nothing")
    options.add_fields(group, RunConfig, "share", "store_precision", "seed")
    options.add_shared(group, "--device", "--json")


def _run(args: argparse.Namespace) -> int:
    from gistgnn.estimate import Resources, make_plan
    from gistgnn.theta.registry import check_workers
    from gistgnn.utils.console import spinner

    if args.budget:
        return _choose(args)
    for m in args.sub_gcns or ():
        check_workers(args.ranks, m, "--sub-gcns")
    config = config_from_args(args, given_sub_gcns(args) if args.phases else 1)
    resources = Resources.here(config.device, args.out, args.memory, args.ranks, args.ranks, started=False)
    sizes, timed = sizes_of(args), args.timed and args.ranks == 1
    with spinner("planning", shown=not args.json):
        epochs = partial(chosen_epochs, config.training) if args.epochs is None and not args.phases else None
        plan = make_plan(config, sizes, resources, args.sub_gcns, args.store, epochs, timed=timed)
    if args.json:
        return options.print_json(plan.as_dict())
    graph, batch, there = plan.graph, plan.batch, plan.resources
    print(f"{graph.name}: {graph.nodes:,} nodes, {graph.edges:,} edges")
    if graph.stored:
        print(f"in files: {size(graph.stored)} of features and edges, {graph.clusters:,} clusters")
    print(f"a step's batch: {batch.nodes:,} nodes, about {batch.edges:,} edges")
    print(f"the full model: {plan.parameters:,} parameters, {size(plan.theta)}")
    gpu = "" if there.gpu is None else f", {size(there.gpu)} on the GPU"
    print(f"available: {size(there.host)} of memory{there.host_limit}{gpu}, {size(there.disk)} on the disk")
    _print_phases(plan) if plan.phased else _print_options(plan)
    print(f"\n{plan.advice}\n{_batches(plan.sampler)}")
    if plan.narrow:
        print(_first_try(plan.narrow, plan.options[0], config.model.hidden))
    return 0


def _choose(args: argparse.Namespace) -> int:
    """Print what a run with a budget would choose, and nothing else."""
    from gistgnn.fit.budget import choose
    from gistgnn.fit.prepare import Setup, Variant, make_sampler
    from gistgnn.sampling import chosen_sampling

    given = {"memory": args.memory, "out": args.out, "no_measure": not args.timed or None}
    if unused := next((name for name, value in given.items() if value is not None), None):
        raise InputError(f"{unused} is given beside a budget, which is planned by measuring steps: leave one out")
    config, graph = config_from_args(args, given_sub_gcns(args)), graph_of(args)
    gist = config.trainer(graph.num_features, graph.num_classes)
    how = (config.sampler, config.runner, config.inductive, config.evaluation)
    setup = Setup(gist, graph.to(gist.device), config.training, Variant(), *how, False, (), None, None, None, None)
    sampler = make_sampler(gist, setup.graph, chosen_sampling(setup.sampling, graph.num_nodes), setup.inductive)
    choice = choose(setup, sampler, args.budget)
    if args.json:
        return options.print_json(choice)
    training, copies = choice["training"], {0: "", 1: ",copies"}
    phases = " ".join(
        f"{each['sub_gcns']}:{each['epochs']:.4g}{copies.get(own := each['copies'], f',copies={own}')}"
        for each in training["phases"]
    )
    print(f"{choice['reason']}\nphases: {phases}, schedule {training['schedule']}, lr {training['lr']:g}")
    return 0


def _print_options(plan: "Plan") -> None:
    memory, time, most = [], [], _most(plan)
    for each in plan.options:
        first = (f"{each.sub_gcns}", each.store)
        memory.append((*first, *_held(each, each.slice, each.training, each.activations, each.evaluation)))
        time += [(*first, *_times(each.seconds))] if each.seconds else []
    _table(_MEMORY, ("m", "store", "", "sub-GCN", "trained", "step", "eval.", *most), memory)
    if time:
        _table("time, an estimate", ("m", "store", *_TIMES[:-1], "whole run"), time)


def _print_phases(plan: "Plan") -> None:
    memory, time, most = [], [], _most(plan)
    for total in plan.totals:
        for each in (option for option in plan.options if option.store == total.store):
            first = (f"{each.number}", f"{each.sub_gcns}", "yes" if each.copies else "", each.store)
            memory.append((*first, *_held(each, each.slice, each.training)))
            time.append((*first, f"{each.rounds}", size(each.rounds * each.moved_by_all), *_times(each.seconds)))
        every, (fits, *peaks) = ("all", "", "", total.store), _held(total)
        memory.append((*every, fits, "", "", *peaks))
        moved = sum(each.rounds * each.moved_by_all for each in plan.options if each.store == total.store)
        time.append((*every, f"{total.rounds}", size(moved), *_times(total.seconds)))
    first = ("phase", "m", "copies", "store")
    _table(_MEMORY, (*first, "", "sub-GCN", "trained", *most), memory)
    title = f"traffic with Θ; time, an estimate (all: with {plan.totals[0].evaluations} evaluations)"
    _table(title, (*first, "rounds", "moves", *_TIMES), time)


def _batches(sampler: Mapping[str, Any] | None) -> str:
    if sampler is None:
        return "batches: every step sees the whole graph"
    counts = (f"{name.replace('_', ' ')} {value}" for name, value in sampler.items() if type(value) is int)
    return ", ".join([f"batches: --sampler {sampler['name']}", *counts])


def _first_try(narrow: "Option", wide: "Option", hidden: Sequence[int]) -> str:
    """Name the narrow model to try before a wide one, with the time of an epoch of both."""
    from gistgnn.fit.budget import NARROWEST, even_parts

    widths = " ".join(f"{min(width, NARROWEST)}" for width in hidden)
    said, epoch = f"try a narrow model first: --hidden {widths} --sub-gcns 1", _TIMES.index("epoch")
    own, other = _times(narrow.seconds)[epoch], _times(wide.seconds)[epoch]
    said += f", {own} an epoch; the wide one with m = {wide.sub_gcns} takes {other}" if own else ""
    budget = "\nin a given time: --budget TIME trains a narrow part, and copies it into the wide model"
    return f"{said}{budget if len(even_parts(hidden)) > 1 else ''}"


def _times(seconds: Mapping[str, float] | None) -> list[str]:
    """Format estimates with two digits at most; what is not estimated is left empty."""
    known = [(seconds or {}).get(name) for name in _TIMES]
    return ["" if s is None else rough_duration(s) if s >= 99.5 else duration(float(f"{s:.2g}")) for s in known]


def _held(planned: "Option", *sizes: int) -> list[str]:
    """Return whether it fits, some sizes, and the most that memory, the disk and the host's memory hold."""
    peaks = (*sizes, planned.memory, planned.peaks["disk"], planned.machine)
    return ["fits" if planned.fits else "too large", *map(size, peaks)]


def _most(plan: "Plan") -> tuple[str, ...]:
    """The columns of peaks; what several ranks hold of the host's memory together is one more."""
    return ("peak", "disk", *([f"{plan.resources.local} ranks"] * (plan.resources.local > 1)))


def _table(title: str, columns: tuple[str, ...], rows: Iterable[Iterable[str]]) -> None:
    from gistgnn.utils.console import print_table

    print()
    print_table(title, columns, [list(row)[: len(columns)] for row in rows], left=["store"])
