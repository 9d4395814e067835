"""Tables for the terminal and in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gistgnn.report.names import pooled_inference
from gistgnn.utils.formats import duration, mean_sd, size

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Row


def speedup(row: Row, baseline: Row) -> str:
    """Format a speed-up; in parentheses if it costs more than a point of the score, as in the paper's Table 2."""
    if row.speedup is None:
        return "–"
    text = f"{row.speedup:.2f}x"
    return f"({text})" if row.costs_too_much(baseline) else text


def comparison_table(rows: Sequence[Row], below: float) -> tuple[list[str], list[list[str]]]:
    """Return the columns and cells of a comparison; the first row is the baseline.

    The column "until" is the time to a test score `below` points below the baseline's final one; it also says how many
    seeds reached that score, if not all did.
    """
    columns = ["method", "m", "score", "time", "speed-up", f"until −{below:g}", "sent", "inference", "memory"]
    cells = []
    models = ((row.method == "ensemble" and row.sub_gcns, row.detail) for row in rows)
    passes = pooled_inference([(model, row.inference_seconds) for model, row in zip(models, rows, strict=True)])
    for row, one_pass in zip(rows, passes, strict=True):
        reached = [seconds for seconds in row.seconds_to if seconds is not None]
        until = duration(statistics.fmean(reached)) if reached else "–"
        if reached and len(reached) < len(row.seconds_to):
            until += f" ({len(reached)}/{len(row.seconds_to)})"
        sent = size(row.bytes) if row.bytes else "–"
        inference = duration(one_pass) if one_pass is not None else "–"
        measured = [mean_sd(row.score), duration(row.time), speedup(row, rows[0]), until, sent, inference]
        cells.append([row.name, str(row.sub_gcns), *measured, size(statistics.fmean(row.peak_memory_bytes))])
    return columns, cells


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return a table in Markdown, followed by a note."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{note}\n"
