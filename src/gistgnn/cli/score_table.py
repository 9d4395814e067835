"""Tables on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_scores(
    title: str, rows: Mapping[str, Mapping[str, float] | None], evaluation: Mapping[str, Any] | None = None
) -> None:
    """Print one row of scores for each name; a row without scores is left out, and approximate ones are said to be."""
    if evaluation and not evaluation["exact"]:
        sample = f"{evaluation['sample']} of " if "sample" in evaluation else ""
        title += f" (approximate, by {sample}{evaluation['parts']} parts)"
    table = Table(title=title)
    table.add_column("split")
    for column in ("accuracy", "micro F1", "macro F1"):
        table.add_column(column, justify="right")
    for name, found in rows.items():
        if found:
            table.add_row(name, *(f"{found[key]:.4f}" for key in ("accuracy", "f1_micro", "f1_macro")))
    Console().print(table)
