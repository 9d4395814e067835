"""`gistgnn compare`: GIST and other methods, or finished runs, side by side on one graph."""

import argparse
import json
import logging
from itertools import chain
from pathlib import Path
from typing import Any

from gistgnn.baselines.registry import METHODS, UNSPLIT
from gistgnn.cli import options, values
from gistgnn.cli.process import load_torch, locked_folder, refuse_torchrun
from gistgnn.cli.training_options import (
    add_training_options,
    config_from_args,
    graph_of,
    sizes_of,
    title_of,
    without_dataset,
)
from gistgnn.defaults import EPOCHS
from gistgnn.errors import InputError, printable
from gistgnn.sampling.registry import AUTO
from gistgnn.settings import LR
from gistgnn.utils.formats import duration

SUB_GCNS = [2, 4, 8]

log = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = options.add_command(
        commands, "compare", _run, "compare methods, or finished runs, side by side",
        takes="[DIR ...]",
        description="Train one model with several methods and several m, one run after another; or "
        "compare runs that are finished. Writes a table and a report.",
        example="gistgnn compare --dataset cora --methods gist parts --sub-gcns 2 4\n"
        "gistgnn compare --methods gist parts --sub-gcns 4 --budget 30s\n"
        "gistgnn compare runs/a runs/b",
        common=("--methods", "--seeds", "--budget", *options.MOST_USED, "--out", "--json"),
    )  # fmt: skip
    group = parser.add_group("comparison")
    add = group.add_argument
    add(
        "runs",
        type=Path,
        nargs="*",
        metavar="DIR",
        help="folders of finished runs: compare these, and train nothing",
    )
    add(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=["gist"],
        help="to compare with one device (default: gist)",
    )
    add(
        "--seeds",
        type=values.thousand,
        default=1,
        metavar="S",
        help="runs of each method (default: 1)",
    )
    options.add_shared(group, "--out", default=Path("comparison"))
    options.add_shared(group, "--json", "--device", "--memory")
    add_training_options(
        parser, several="every m, and number of workers or members (default: 2 4 8)"
    )
    defaults = {"epochs": EPOCHS, "lr": LR}  # the same for every m
    for option in parser.options:
        if option.dest in defaults:
            option.help = f"of every run (default: {defaults[option.dest]:g})"
        if option.dest == "budget":
            option.help = (
                "of training for every run, such as 30s; one more row is `gistgnn train --budget`"
            )


def _run(args: argparse.Namespace) -> int:
    if args.runs:
        _refuse_training_options(args)
    refuse_torchrun("compare trains")
    with locked_folder(args.out):
        if not args.runs:
            return _write(_train(args), args)
        load_torch()
        from gistgnn.compare.comparison import compare_runs

        return _write(compare_runs(args.runs)[1], args)


def _refuse_training_options(args: argparse.Namespace) -> None:
    """Refuse the options that could not change finished runs."""
    for option in args.parser.options:
        if option.dest in args.typed and option.dest not in ("out", "json", "quiet", "verbose"):
            name = option.option_strings[0]
            raise InputError(f"{name} is given beside folders of runs: leave one of them out")


def _train(args: argparse.Namespace) -> dict[str, Any]:
    """Train the runs that the options describe; return what comparison.json holds of them."""
    args.seed = 0
    seconds: float | None = args.budget
    args.budget = None  # It chooses the epochs of the runs, and is no setting of theirs.
    if seconds is not None and args.epochs is not None:
        raise InputError("epochs is given beside a budget, which chooses it: leave one out")
    if args.epochs is None:
        args.epochs = EPOCHS  # as many for every m
    if args.sampler == AUTO and not set(args.methods).isdisjoint(UNSPLIT):
        # Workers with batches of their own always get clusters from `auto`. All rows shall have
        # the same batches.
        args.sampler = "clusters"
    base = config_from_args(args, 1, title=title_of(args))
    from gistgnn.compare.comparison import (
        compare,
        details_of_rows,
        runs_of,
        table_record,
        training_record,
    )
    from gistgnn.compare.equal_time import runs_within
    from gistgnn.compare.many_runs import RunStore, with_seeds
    from gistgnn.estimate import Resources, require_room
    from gistgnn.utils.console import spinner

    runs = runs_of(lambda m: config_from_args(args, m), args.methods, args.sub_gcns or SUB_GCNS)
    store = RunStore(args.out / "runs", args.data_root)
    with spinner(f"reading {base.dataset}", shown=True):
        here = Resources.here(base.device, args.out, args.memory)
        sizes = sizes_of(args)
        graph = graph_of(args)
        store.graphs[base.dataset] = graph
        for run in runs:  # refuse bad settings, and runs that do not fit
            run.trainer(graph.num_features, graph.num_classes)
            if not store.finished(with_seeds([run], args.seeds)):
                require_room(run, sizes, here, ["memory"])
    if missing := without_dataset(args):
        log.warning("%s", missing)
    if seconds is not None:
        runs = runs_within(store, runs, seconds)
    details = details_of_rows(runs)
    rows, records = compare(store, runs, args.seeds, "comparing", details)
    for record in chain.from_iterable(records):
        if record.diverged is not None:
            config = record.config
            log.warning("%s, m = %s: %s", config["method"], config["sub_gcns"], record.diverged)
    title = f"{base.model.name} on {records[0][0].graph.name}"
    if seconds is not None:
        title += f", {duration(seconds)} of training each"
    return {**table_record(title, rows, records), **training_record(runs, args.seeds, seconds)}


def _write(record: dict[str, Any], args: argparse.Namespace) -> int:
    """Write what comparison.json holds, the table and the report; print the table."""
    from gistgnn.compare import as_markdown
    from gistgnn.report import REPORT, write_report
    from gistgnn.report.pages import comparison_page, comparison_table
    from gistgnn.utils.console import print_table

    columns, cells = comparison_table(record)
    note = " ".join([*record["notes"], f"Measured on {record['machine']}."])
    texts = {"comparison.json": json.dumps(record, indent=1, default=list) + "\n"}
    texts |= {"comparison.md": as_markdown(columns, cells, note), REPORT: comparison_page(record)}
    for name, text in texts.items():
        write_report(args.out / name, text)
    if args.json:
        return options.print_json(record)
    print_table(record["title"], columns, cells, left=columns)
    print(f"written: {', '.join(printable(args.out / name) for name in texts)}")
    return 0
