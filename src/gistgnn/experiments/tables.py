"""How the tables of the paper look, in the terminal and in Markdown."""

import statistics
from collections.abc import Sequence

from rich.table import Table


def mean_sd(values: Sequence[float]) -> str:
    """Mean ± standard deviation of several runs, or the value of one."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def as_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], centred: Sequence[str] = ()) -> Table:
    """The table for the terminal; it fits 80 columns."""
    table = Table(title=title, box=None, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="center" if column in centred else "left")
    for row in rows:
        table.add_row(*row)
    return table


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """The table in Markdown, and what it says."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{note}\n"
