"""`gistgnn compare`: GIST and other ways to train, side by side on one graph."""

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.few_rounds import warn_of_few_rounds
from gistgnn.cli.options import (
    add_data_options,
    add_device_option,
    add_evaluation_options,
    add_memory_option,
    count,
)
from gistgnn.cli.training_options import METHODS, add_training_options, config_of
from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Comparison, Row
    from gistgnn.compare.many_runs import Record, RunStore
    from gistgnn.planning import GraphSizes
    from gistgnn.runs.config import RunConfig

SUB_GCNS = [2, 4, 8]


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("compare", help="train in several ways, side by side", allow_abbrev=False)
    parser.set_defaults(run=run)
    group = parser.add_argument_group("comparison")
    add = group.add_argument
    add(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=["gist"],
        help="what is compared with one device, for every M: as --method of train has them (default: gist)",
    )
    add("--seeds", type=count, default=1, metavar="S", help="runs of each, with seeds 0 to S - 1 (default: 1)")
    add(
        "--below",
        type=float,
        default=0.5,
        metavar="X",
        help="also the time until the baseline's test score less X points (default: 0.5)",
    )
    add(
        "--at-once",
        type=count,
        metavar="K",
        help="how many runs of a seed take turns, all of which are in memory (default: all of them)",
    )
    add(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="where finished runs, the table and the report are kept; run again with the same DIR to go on "
        "(default: comparison)",
    )
    add("--json", action="store_true", help="print comparison.json on standard output, and nothing else there")
    add_data_options(parser, default="digits")
    add_training_options(parser, several="every m, and number of workers or members (default: 2 4 8)")
    add_evaluation_options(parser, default="auto")
    add_device_option(group)
    add_memory_option(group)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.compare.comparison import Comparison, comparison_record
    from gistgnn.compare.many_runs import RunStore
    from gistgnn.io.whole_files import check_writable
    from gistgnn.utils.machine import describe_machine

    args.seed = 0
    base = config_of(args, 1, "memory")
    methods = tuple(dict.fromkeys(args.methods))
    comparison = Comparison(base, methods, tuple(dict.fromkeys(args.sub_gcns or SUB_GCNS)), args.seeds, args.below)
    check_writable(args.out)
    store = RunStore(args.out / "runs", args.data_root)
    _check(comparison, store, args)
    rows, found = comparison.run(store, args.at_once)
    machine, command = describe_machine(base.device), shlex.join(["gistgnn", *sys.argv[1:]])
    record = comparison_record(comparison, rows, found, machine, command)
    _write(args.out, record, rows)
    _report(args.out, record, rows, found, as_json=args.json)
    return 0


def _check(comparison: "Comparison", store: "RunStore", args: argparse.Namespace) -> None:
    """Refuse runs that cannot be, or do not fit into the memory together; point out those of too few rounds."""
    from gistgnn.graphs import load
    from gistgnn.planning import GraphSizes

    graph = load(args.dataset, args.data_root)
    sizes = GraphSizes.of_graph(graph)
    configs = [comparison.config(*cell, 0) for cell in comparison.cells]
    for config in configs:
        config.trainer(graph.num_features, graph.num_classes)
        warn_of_few_rounds(config, sizes)
    missing = [
        config for config in configs if any(store.get(replace(config, seed=s)) is None for s in range(args.seeds))
    ]
    _require_room(missing, sizes, args)


def _require_room(configs: "list[RunConfig]", sizes: "GraphSizes", args: argparse.Namespace) -> None:
    from gistgnn.planning import Resources, ample_bytes, peak_bytes
    from gistgnn.utils.formats import size

    if not configs:
        return
    here = Resources.here(configs[0].device, args.out, args.memory)
    room = here.gpu or here.host
    together = min(args.at_once or len(configs), len(configs))
    if sum(ample_bytes(config.planned, sizes) + here.base for config in configs) <= room:
        return
    peaks = sorted((peak_bytes(config, sizes) + here.base for config in configs), reverse=True)
    if (needs := sum(peaks[:together])) > room:
        fitting = sum(sum(peaks[:k]) <= room for k in range(1, together))
        advice = f"--at-once {fitting} would fit" if fitting else "make --hidden smaller, or see `gistgnn plan`"
        raise InputError(
            f"{together} runs that take turns need {size(needs)} of memory together, {size(room)} are available: "
            f"{advice}"
        )


def _write(out: Path, record: dict[str, Any], rows: "list[Row]") -> None:
    from gistgnn.compare import tables
    from gistgnn.io.whole_files import replacing
    from gistgnn.report import REPORT, write_report
    from gistgnn.report.comparison_page import comparison_page  # imports matplotlib, which is slow

    with replacing(out / "comparison.md") as path:
        note = " ".join([*record["notes"], f"Measured on {record['machine']}."])
        path.write_text(tables.as_markdown(*tables.comparison(rows, record["below"]), note), encoding="utf-8")
    with replacing(out / "comparison.json") as path:
        path.write_text(json.dumps(record, indent=1, default=list) + "\n", encoding="utf-8")
    write_report(out / REPORT, comparison_page(record))


def _report(
    out: Path, record: dict[str, Any], rows: "list[Row]", found: "list[list[Record]]", *, as_json: bool
) -> None:
    from rich.console import Console

    from gistgnn.compare import tables

    for run in (run for runs in found for run in runs if "diverged" in run):
        print(
            f"gistgnn: note: {run['config']['method']}, m = {run['config']['sub_gcns']}: {run['diverged']}",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(record, indent=2, default=list))
        return
    Console().print(tables.as_table(record["title"], *tables.comparison(rows, record["below"])))
    print(f"written: {out / 'comparison.json'}, {out / 'comparison.md'}, {out / 'report.html'}")
