"""How tables look, in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from gistgnn.experiments.comparison import Row


def speedup(row: Row, baseline: Row) -> str:
    """A speed-up, in parentheses where it costs more than a point of the score, as in Table 2 of the paper."""
    said = f"{row.speedup:.2f}x"
    return f"({said})" if row.costs_too_much(baseline) else said


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
