"""How tables look, in the terminal and in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from gistgnn.utils.formats import duration, mean_sd, size

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Row


def speedup(row: Row, baseline: Row) -> str:
    """A speed-up, in parentheses where it costs more than a point of the score, as in Table 2 of the paper."""
    if row.speedup is None:
        return "–"
    said = f"{row.speedup:.2f}x"
    return f"({said})" if row.costs_too_much(baseline) else said


def comparison(rows: Sequence[Row], below: float) -> tuple[list[str], list[list[str]]]:
    """The columns and cells of a comparison, whose first row is the baseline.

    "until" is the time until the test score was so many points below the baseline's final one, and how many of the
    seeds got there, if not all.
    """
    columns = ["method", "m", "score", "time", "speed-up", f"until −{below:g}", "sent", "inference", "memory"]
    return columns, [_cells(row, rows[0]) for row in rows]


def _cells(row: Row, baseline: Row) -> list[str]:
    reached = [seconds for seconds in row.seconds_to if seconds is not None]
    to = duration(statistics.fmean(reached)) if reached else "–"
    if reached and len(reached) < len(row.seconds_to):
        to += f" ({len(reached)}/{len(row.seconds_to)})"
    return [
        row.name,
        str(row.sub_gcns),
        mean_sd(row.score),
        duration(row.time),
        speedup(row, baseline),
        to,
        size(row.bytes) if row.bytes else "–",
        duration(row.inference) if row.inference is not None else "–",
        size(statistics.fmean(row.peak_memory_bytes)),
    ]


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
