"""`gistgnn plan`: what a run would take, for several m, and what a budget would choose."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli import options, values
from gistgnn.cli.training_options import (
    add_training_options,
    config_from_args,
    given_sub_gcns,
    graph_of,
    sizes_of,
    without_dataset,
)
from gistgnn.errors import InputError
from gistgnn.runs.config import RunConfig
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import duration, rough_duration, size

if TYPE_CHECKING:
    from gistgnn.estimate import Option, Plan
    from gistgnn.fit.trials import Trials
    from gistgnn.graphs import Graph

PLANNED_STORES = ["memory", "disk"]
_WITHOUT_BUDGET = ("memory", "out", "timed", "ranks", "store")  # options that a budget refuses
_TIMES = ("step", "round", "epoch", "evaluation", "total")


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = options.add_command(
        commands, "plan", _run, "say what training would take, and which m fit",
        description="Say what memory, disk and time a run would take for several m, and which m to "
        "choose. A few rounds of every m are timed on a random graph; nothing is kept.",
        example="gistgnn plan --dataset ogbn-arxiv --hidden 4096 4096",
        common=(*options.MOST_USED, "--budget", "--store", "--memory", "--json"),
    )  # fmt: skip
    add_training_options(
        parser, several="every m to plan for (default: 1 2 4 8 16, as far as the widths allow)"
    )
    group = parser.add_group("plan")
    add = group.add_argument
    text = f"where the parameters lie (default: {' '.join(PLANNED_STORES)})"
    add("--store", choices=list(STORES), nargs="+", default=PLANNED_STORES, help=text)
    text = "plan for W ranks of torchrun on one machine; sizes are a rank's, and there are no times"
    add("--ranks", type=values.count, default=1, metavar="W", help=text)
    options.add_shared(group, "--memory")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the run's files would go: the room on that disk is compared",
    )
    add("--no-measure", dest="timed", action="store_false", help="no times: train nothing")
    options.add_fields(group, RunConfig, "share", "seed")
    options.add_shared(group, "--device", "--json")


def _run(args: argparse.Namespace) -> int:
    from gistgnn.estimate import Resources, make_plan
    from gistgnn.theta.registry import check_workers
    from gistgnn.utils.console import spinner

    if args.budget:
        return _choose(args)
    for m in args.sub_gcns or ():
        check_workers(args.ranks, m, "--sub-gcns")
    config = config_from_args(args, 1)
    resources = Resources.here(
        config.device, args.out, args.memory, args.ranks, args.ranks, started=False
    )
    sizes = sizes_of(args)

    def config_of(m: int) -> RunConfig:
        """Return the run with m sub-GCNs.

        Its epochs and its norm follow from m where they are not given.
        """
        return replace(config_from_args(args, m), device=config.device)

    timed = args.timed and args.ranks == 1
    with spinner("planning", shown=not args.json):
        plan = make_plan(config_of, sizes, resources, args.sub_gcns, args.store, timed=timed)
    if args.json:
        return options.print_json(plan.as_dict())
    if missing := without_dataset(args):
        print(missing)
    _print_sizes(plan)
    _print_options(plan)
    print(f"\n{plan.advice}")
    if plan.instead:
        print(plan.instead)
    print(_batches(plan.sampler))
    if plan.narrow:
        print(_first_try(plan.narrow, plan.options[0], config.model.hidden))
    return 0


def _choose(args: argparse.Namespace) -> int:
    """Print what a run with a budget would choose, and nothing else."""
    import msgspec
    import torch

    from gistgnn.utils.denormals import denormals_as_zero

    for option in args.parser.options:
        if option.dest in args.typed and option.dest in _WITHOUT_BUDGET:
            raise InputError(
                f"{option.option_strings[0]} is given beside a budget, which is planned by "
                "measuring steps: leave one out"
            )
    config = config_from_args(args, given_sub_gcns(args))
    graph = graph_of(args)
    with denormals_as_zero(), torch.inference_mode(False), torch.enable_grad():  # as in a run
        choice = trials_of(config, graph, args.budget).choose()
    if args.json:
        return options.print_json(msgspec.to_builtins(choice, str_keys=True))
    print(choice.reason)
    return 0


def trials_of(config: RunConfig, graph: "Graph", seconds: float) -> "Trials":
    """Return the trials of a run with a budget.

    Args:
        config: the run.
        graph: what it trains on.
        seconds: the budget.
    """
    from gistgnn.fit.narrow import NarrowRuns
    from gistgnn.fit.prepare import FitArguments, prepare
    from gistgnn.fit.trials import Clock, Trials, cluster_method_within, with_cluster_method
    from gistgnn.gist import run_to_end
    from gistgnn.utils.process_memory import keep_freed_memory

    clock = Clock(seconds)
    keep_freed_memory()  # as a run does
    gist = config.trainer(graph.num_features, graph.num_classes)
    arguments = FitArguments(
        sampling=config.sampler,
        runner=config.runner,
        inductive=config.inductive,
        evaluation=config.evaluation,
        standardise=config.standardise,
    )
    setup = prepare(gist, graph, config.training, arguments)
    setup = with_cluster_method(setup, cluster_method_within(setup, seconds))
    return Trials(NarrowRuns(setup, run_to_end), clock)


def _print_sizes(plan: "Plan") -> None:
    graph = plan.graph
    batch = plan.batch
    resources = plan.resources
    print(f"{graph.name}: {graph.nodes:,} nodes, {graph.edges:,} edges")
    if graph.stored:
        print(f"in files: {size(graph.stored)} of features and edges, {graph.clusters:,} clusters")
    print(f"a step's batch: {batch.nodes:,} nodes, about {batch.edges:,} edges")
    print(f"the full model: {plan.parameters:,} parameters, {size(plan.theta)}")
    gpu = "" if resources.gpu is None else f", {size(resources.gpu)} on the GPU"
    host = f"{size(resources.host)} of memory{resources.host_limit}"
    print(f"available: {host}{gpu}, {size(resources.disk)} on the disk")


def _print_options(plan: "Plan") -> None:
    memory: list[list[str]] = []
    time: list[list[str]] = []
    for option in plan.options:
        first = [f"{option.sub_gcns}", option.store]
        memory.append([*first, *_sizes(option)])
        if option.seconds:
            time.append([*first, *_times(option.seconds)])
    peaks = ["peak", "disk"]
    if plan.resources.local > 1:
        peaks.append(f"{plan.resources.local} ranks")
    columns = ("m", "store", "", "sub-GCN", "trained", "step", "eval.", *peaks)
    _table("memory (trained: with gradients and optimiser)", columns, memory)
    if time:
        _table("time, an estimate", ("m", "store", *_TIMES[:-1], "whole run"), time)


def _batches(sampler: Mapping[str, Any] | None) -> str:
    if sampler is None:
        return "batches: every step sees the whole graph"
    counts = (
        f"{name.replace('_', ' ')} {value}" for name, value in sampler.items() if type(value) is int
    )
    return ", ".join([f"batches: --sampler {sampler['name']}", *counts])


def _first_try(narrow: "Option", wide: "Option", hidden: Sequence[int]) -> str:
    """Name the narrow model to try before a wide one, with the time of an epoch of both."""
    from gistgnn.fit.trials import NARROWEST, even_parts

    widths = " ".join(f"{min(width, NARROWEST)}" for width in hidden)
    text = f"try a narrow model first: --hidden {widths} --sub-gcns 1"
    if narrow.seconds and wide.seconds:
        narrow_epoch = _time(narrow.seconds["epoch"])
        wide_epoch = _time(wide.seconds["epoch"])
        text += (
            f", {narrow_epoch} an epoch; the wide one with m = {wide.sub_gcns} takes {wide_epoch}"
        )
    if len(even_parts(hidden)) > 1:
        text += (
            "\nin a given time: --budget TIME trains a narrow part, and copies it into the "
            "wide model"
        )
    return text


def _times(seconds: Mapping[str, float]) -> list[str]:
    return [_time(seconds[name]) for name in _TIMES]


def _time(seconds: float) -> str:
    """Format an estimate with two digits at most."""
    return rough_duration(seconds) if seconds >= 99.5 else duration(float(f"{seconds:.2g}"))


def _sizes(option: "Option") -> list[str]:
    """Return whether it fits, the sizes of its parts, and the most that every place holds."""
    memory = option.memory
    parts = (memory.run.largest_slice, option.trained, memory.activations, memory.scoring.memory)
    peaks = (option.peak, memory.peaks["disk"], option.machine)
    return ["fits" if option.fits else "too large", *map(size, (*parts, *peaks))]


def _table(title: str, columns: tuple[str, ...], rows: Iterable[Sequence[str]]) -> None:
    from gistgnn.utils.console import print_table

    print()
    print_table(title, columns, [list(row[: len(columns)]) for row in rows], left=["store"])
