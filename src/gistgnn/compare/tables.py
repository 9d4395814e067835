"""What the tables of comparisons and of the paper share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Row


def speedup(row: Row, baseline: Row) -> str:
    """Format a speed-up; in parentheses if it costs more than a point of the score, as in the paper's Table 2."""
    if row.speedup is None:
        return "–"
    text = f"{row.speedup:.2f}x"
    return f"({text})" if row.costs_too_much(baseline) else text


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return a table in Markdown, followed by a note."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{note}\n"
