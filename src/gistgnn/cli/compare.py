"""`gistgnn compare`: GIST and other methods, or finished runs, side by side on one graph."""

import argparse
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.baselines.registry import METHODS
from gistgnn.cli import options
from gistgnn.cli.parser import Parser, add_command
from gistgnn.cli.process import load_torch, refuse_torchrun
from gistgnn.cli.run_directory import own_directory
from gistgnn.cli.training_options import add_training_options, config_of, title_of
from gistgnn.errors import InputError, printable

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Row
    from gistgnn.compare.many_runs import RunStore
    from gistgnn.runs.config import RunConfig

SUB_GCNS = [2, 4, 8]

log = logging.getLogger(__name__)


_COMMON = (
    "--methods", "--sub-gcns", "--seeds", "--dataset", "--data-root", "--model", "--hidden", "--epochs", "--sampler",
    "--clusters", "--device", "--out", "--json",
)  # fmt: skip


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands,
        "compare",
        lambda args: run(parser, args),
        "compare methods, or finished runs, side by side",
        description="Train one model with several methods and several m, one run after another; or compare runs that "
        "are finished. Writes a table and a report.",
        example="gistgnn compare --dataset cora --methods gist data-parallel --sub-gcns 2 4 --seeds 3\n"
        "gistgnn compare runs/a runs/b",
        common=_COMMON,
    )
    group = parser.add_argument_group("comparison")
    add = group.add_argument
    text = "folders of finished runs: compare these, and train nothing (default: train with every method and M)"
    add("runs", type=Path, nargs="*", metavar="DIR", help=text)
    text = "methods to compare with one device, for every M; see --method of `gistgnn train` (default: gist)"
    add("--methods", nargs="+", choices=METHODS, default=["gist"], help=text)
    text = "runs of each method, with seeds 0 to S − 1 (default: 1)"
    add("--seeds", type=options.thousand, default=1, metavar="S", help=text)
    text = "also show the time to the baseline's final test score less X points (default: 0.5)"
    add("--below", type=options.points, default=0.5, metavar="X", help=text)
    options.add_folder_option(group, Path("comparison"))
    options.add_json_option(group, "comparison.json")
    options.add_data_options(parser, default="digits")
    add_training_options(parser, several="every m, and number of workers or members (default: 2 4 8)")
    options.add_evaluation_options(parser, default="auto")
    options.add_device_option(group)
    options.add_memory_option(group)


def run(parser: Parser, args: argparse.Namespace) -> int:
    """Run the command."""
    if args.runs:
        _refuse_training_options(parser, args)
    refuse_torchrun("compare trains")
    with own_directory(args.out):
        rows, record = _of_runs(args) if args.runs else _train(args)
        return _write(rows, record, args)


def _of_runs(args: argparse.Namespace) -> "tuple[list[Row], dict[str, Any]]":
    """Compare finished runs."""
    load_torch()
    from gistgnn.compare.from_runs import compare_runs

    return compare_runs(args.runs, args.below)


def _train(args: argparse.Namespace) -> "tuple[list[Row], dict[str, Any]]":
    """Train with every method and m."""
    args.seed, sub_gcns = 0, args.sub_gcns or SUB_GCNS
    if args.phases:
        raise InputError("phases are given, but compare trains every m from --sub-gcns: use train for each phase list")
    base = config_of(args, 1, title=title_of(args, *sub_gcns))
    from gistgnn.compare.comparison import compare, runs_of, table_record, training_record
    from gistgnn.compare.many_runs import RunStore
    from gistgnn.utils.console import spinner

    runs = runs_of(base, args.methods, sub_gcns)
    store = RunStore(args.out / "runs", args.data_root)
    with spinner(f"reading {base.dataset}", shown=True):
        _check(runs, store, args)
    rows, records = compare(store, runs, args.seeds, "comparing", args.below)
    for record in (record for each in records for record in each if "diverged" in record):
        config = record["config"]
        log.warning("%s, m = %s: %s", config["method"], config["sub_gcns"], record["diverged"])
    title = f"{base.model.name} on {records[0][0]['graph']['name']}"
    return rows, {**table_record(title, rows, records, args.below), **training_record(base, args.seeds)}


def _write(rows: "list[Row]", record: dict[str, Any], args: argparse.Namespace) -> int:
    """Write the files of a comparison, and print its table."""
    from gistgnn.compare.tables import as_markdown
    from gistgnn.report import REPORT, write_report
    from gistgnn.report.comparison_page import comparison_page, comparison_table
    from gistgnn.storage.whole_files import replacing
    from gistgnn.utils.console import print_table

    columns, cells = comparison_table(record)
    note = " ".join([*record["notes"], f"Measured on {record['machine']}."])
    with replacing(args.out / "comparison.md") as path:
        path.write_text(as_markdown(columns, cells, note), encoding="utf-8", errors="backslashreplace")
    with replacing(args.out / "comparison.json") as path:
        path.write_text(json.dumps(record, indent=1, default=list) + "\n", encoding="utf-8")
    write_report(args.out / REPORT, comparison_page(record))
    if args.json:
        return options.print_json(record)
    print_table(record["title"], columns, cells, left=columns)
    written = (args.out / name for name in ("comparison.json", "comparison.md", "report.html"))
    print(f"written: {', '.join(map(printable, written))}")
    return 0


def _refuse_training_options(parser: Parser, args: argparse.Namespace) -> None:
    """Refuse options of training beside folders of finished runs, which they could not change."""
    used = ("runs", "out", "below", "json", "help")
    options = (action for action in parser._actions if action.option_strings and action.dest not in used)
    for option in options:
        if getattr(args, option.dest, option.default) != option.default:
            raise InputError(f"{option.option_strings[-1]} is given beside folders of runs: leave one of them out")


def _check(runs: "list[RunConfig]", store: "RunStore", args: argparse.Namespace) -> None:
    """Refuse bad settings, and runs that do not fit into memory."""
    from gistgnn.estimate import Resources, peak_bytes
    from gistgnn.graphs import load
    from gistgnn.graphs.sizes import GraphSizes
    from gistgnn.utils.formats import size

    graph = load(args.dataset, args.data_root)
    here = Resources.here(runs[0].device, args.out, args.memory)
    room = here.gpu or here.host
    for run in runs:
        run.trainer(graph.num_features, graph.num_classes)
        if run.model.own or all(store.get(replace(run, seed=seed)) for seed in range(args.seeds)):
            continue
        if (needs := peak_bytes(run, GraphSizes.of_graph(graph)) + here.base) > room:
            raise InputError(
                f"{run.method} with m = {run.sub_gcns} needs {size(needs)} of memory, but {size(room)} are available: "
                "make --hidden smaller, or see `gistgnn plan`"
            )
