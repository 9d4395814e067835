"""The notebook runs, and keeps the pictures of its last run."""

import base64
from pathlib import Path

from tests.helpers.commands import run_program
from tests.helpers.notebooks import cells, code_cells

NOTEBOOK = Path(__file__).parents[2] / "examples/gist.ipynb"
BEFORE = "import matplotlib; matplotlib.use('Agg')"


def test_its_cells_run_in_order(tmp_path: Path) -> None:
    program = "\n".join([BEFORE, *code_cells(NOTEBOOK)])
    assert program.count("epochs = 400") == 1
    done = run_program(tmp_path, program.replace("epochs = 400", "epochs = 8"))
    assert done.returncode == 0, done.stderr


def test_every_cell_was_run_in_order_and_its_pictures_are_kept() -> None:
    shown = cells(NOTEBOOK)
    assert [cell["execution_count"] for cell in shown] == list(range(1, len(shown) + 1))
    outputs = [output for cell in shown for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == sum("".join(cell["source"]).endswith((".show()", ".plot()")) for cell in shown)
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert NOTEBOOK.stat().st_size < 300_000
