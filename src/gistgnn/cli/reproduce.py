"""`gistgnn reproduce`: the paper's tables, run again."""

import argparse
from pathlib import Path
from typing import Any

from gistgnn.cli.options import add_device_option, count

SMALL_DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper again", allow_abbrev=False)
    experiments = parser.add_subparsers(metavar="EXPERIMENT", required=True, parser_class=type(parser))
    table1 = experiments.add_parser(
        "table1", help="which dimensions to partition: GCN 256-256 on small graphs", allow_abbrev=False
    )
    table1.set_defaults(run=run_table1)
    table1.add_argument(
        "--datasets", nargs="+", choices=SMALL_DATASETS, default=["cora", "citeseer"], help="(default: cora citeseer)"
    )
    table1.add_argument("--data-root", default="data", metavar="DIR", help="(default: data)")
    table1.add_argument("--seeds", type=count, default=5, help="runs of each row (default: 5)")
    table1.add_argument("--epochs", type=count, default=400, help="for each sub-GCN (default: 400)")
    table1.add_argument("--jobs", type=count, default=1, help="runs at the same time, one thread each (default: 1)")
    add_device_option(table1)
    table1.add_argument(
        "--out",
        type=Path,
        default=Path("reproduce/table1"),
        metavar="DIR",
        help="where finished runs and the table are "
        "kept; run again with the same DIR to go on (default: reproduce/table1)",
    )


def run_table1(args: argparse.Namespace) -> int:
    """Run `gistgnn reproduce table1`."""
    from rich.console import Console

    from gistgnn.experiments.table1 import Table1, as_markdown, as_table
    from gistgnn.files import check_writable, replacing
    from gistgnn.run import choose_device

    check_writable(args.out)
    table = Table1(tuple(args.datasets), args.seeds, args.epochs, choose_device(args.device))
    results = table.run(args.out, args.data_root, args.jobs)
    Console().print(as_table(results))
    path = args.out / "table1.md"
    with replacing(path) as temporary:
        temporary.write_text(as_markdown(results, table), encoding="utf-8")
    print(f"written: {path}")
    return 0
