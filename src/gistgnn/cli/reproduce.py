"""`gistgnn reproduce`: the paper's tables, run again."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_device_option, count

if TYPE_CHECKING:
    from rich.table import Table

SMALL_DATASETS = ("cora", "citeseer", "pubmed", "ogbn-arxiv")


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper again", allow_abbrev=False)
    experiments = parser.add_subparsers(metavar="EXPERIMENT", required=True, parser_class=type(parser))
    _add_table1(experiments)
    _add_ladies(experiments)


def _add_table1(experiments: Any) -> None:
    table1 = experiments.add_parser(
        "table1", help="which dimensions to partition: GCN 256-256 on small graphs", allow_abbrev=False
    )
    table1.set_defaults(run=run_table1)
    table1.add_argument(
        "--datasets", nargs="+", choices=SMALL_DATASETS, default=["cora", "citeseer"], help="(default: cora citeseer)"
    )
    _add_common(table1, "table1", seeds=5, epochs=400, said="for each sub-GCN")


def _add_ladies(experiments: Any) -> None:
    ladies = experiments.add_parser(
        "ladies", help="Table 4: GIST with layer sampling, GCN 256 with two and three hidden layers", allow_abbrev=False
    )
    ladies.set_defaults(run=run_ladies)
    ladies.add_argument(
        "--datasets",
        nargs="+",
        metavar="NAME",
        default=["synthetic:reddit"],
        help="names from `gistgnn datasets` (default: synthetic:reddit)",
    )
    ladies.add_argument(
        "--layers", nargs="+", type=int, choices=(2, 3), default=[2, 3], help="L, hidden layers (default: 2 3)"
    )
    ladies.add_argument(
        "--local-steps", type=count, metavar="N", help="ζ (default: 500 on Reddit's shape, 50 on smaller graphs)"
    )
    _add_common(ladies, "ladies", seeds=1, epochs=80, said="split over the sub-GCNs")


def _add_common(parser: argparse.ArgumentParser, name: str, *, seeds: int, epochs: int, said: str) -> None:
    parser.add_argument("--data-root", default="data", metavar="DIR", help="(default: data)")
    parser.add_argument("--seeds", type=count, default=seeds, help=f"runs of each row (default: {seeds})")
    parser.add_argument("--epochs", type=count, default=epochs, help=f"{said} (default: {epochs})")
    parser.add_argument("--jobs", type=count, default=1, help="runs at the same time, one thread each (default: 1)")
    add_device_option(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduce") / name,
        metavar="DIR",
        help="where finished runs and the table are kept; run again with the same DIR to go on "
        f"(default: reproduce/{name})",
    )


def run_table1(args: argparse.Namespace) -> int:
    """Run `gistgnn reproduce table1`."""
    from gistgnn.experiments.table1 import Table1, as_markdown, as_table
    from gistgnn.files import check_writable
    from gistgnn.run import choose_device

    check_writable(args.out)
    table = Table1(tuple(args.datasets), args.seeds, args.epochs, choose_device(args.device))
    rows = table.run(args.out, args.data_root, args.jobs)
    return _report(as_table(rows), args.out / "table1.md", as_markdown(rows, table))


def run_ladies(args: argparse.Namespace) -> int:
    """Run `gistgnn reproduce ladies`."""
    from gistgnn.experiments.ladies import Ladies, as_markdown, as_table
    from gistgnn.files import check_writable
    from gistgnn.run import choose_device

    check_writable(args.out)
    device = choose_device(args.device)
    table = Ladies(tuple(args.datasets), tuple(args.layers), args.seeds, args.epochs, args.local_steps, device)
    rows = table.run(args.out, args.data_root, args.jobs)
    return _report(as_table(rows), args.out / "ladies.md", as_markdown(rows, table))


def _report(table: "Table", path: Path, markdown: str) -> int:
    """Print a table, and write it as Markdown."""
    from rich.console import Console

    from gistgnn.files import replacing

    Console().print(table)
    with replacing(path) as temporary:
        temporary.write_text(markdown, encoding="utf-8")
    print(f"written: {path}")
    return 0
