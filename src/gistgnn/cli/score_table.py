"""Tables of scores on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_scores(
    title: str, rows: Mapping[str, Mapping[str, float] | None], evaluation: Mapping[str, Any] | None = None
) -> None:
    """Print a table of scores.

    Args:
        title: of the table; a note is appended if the scores are approximate.
        rows: the scores of every row by its name; None: the row is left out.
        evaluation: how the model was evaluated, as in result.json.
    """
    if evaluation and not evaluation["exact"]:
        sample = f"{evaluation['sample']} of " if "sample" in evaluation else ""
        title += f" (approximate, by {sample}{evaluation['parts']} parts)"
    table = Table(title=title)
    table.add_column("split")
    for column in ("accuracy", "micro F1", "macro F1"):
        table.add_column(column, justify="right")
    for name, scores in rows.items():
        if scores:
            table.add_row(name, *(f"{scores[key]:.4f}" for key in ("accuracy", "f1_micro", "f1_macro")))
    Console().print(table)
