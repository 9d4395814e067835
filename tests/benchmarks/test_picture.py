"""The picture of the docs shows what was measured, in colours that fit light and dark pages."""

import json
import re
from pathlib import Path

from benchmarks.width.picture import COLOURS, LINES, PLACE, draw

ROOT = Path(__file__).parents[2]


def test_the_picture_has_every_run_and_colours_for_both_modes(tmp_path: Path) -> None:
    measured = json.loads((ROOT / PLACE).read_text())
    assert {(run["method"], run["workers"], run["width"]) for run in measured} == set(LINES)
    draw(measured, tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert all(f">{name}<" in text for name, *_ in LINES.values())
    assert "prefers-color-scheme: dark" in text
    assert not any(placeholder in text for placeholder in COLOURS)
    assert not re.search(r"<(?:image|script|link)\b", text)
