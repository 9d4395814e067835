"""Notebooks, read without Jupyter."""

import json
from pathlib import Path
from typing import Any


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook that hold code."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def code_cells(path: Path) -> list[str]:
    """The text of the cells that hold code."""
    return ["".join(cell["source"]) for cell in cells(path)]
