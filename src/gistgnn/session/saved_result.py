"""The files of a result: result.json, the model, curves.png and report.html."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from gistgnn.io.models import write_model
from gistgnn.io.whole_files import replacing
from gistgnn.report import REPORT, write_report

RESULT, CURVES = "result.json", "curves.png"


def write_result(folder: Path, record: dict[str, Any], model: nn.Module) -> None:
    """Write the files of a result, result.json last: if it is there, the other files are there too.

    Args:
        folder: made if it is not there.
        record: what result.json holds.
        model: its tensors are written as safetensors.

    Raises:
        InputError: the folder cannot be written.
    """
    from gistgnn.report.run_page import plot_curves, run_page  # matplotlib is slow to import

    write_model(folder, model.state_dict())
    with replacing(folder / CURVES) as path:
        plot_curves(record, path)
    write_report(folder / REPORT, run_page(record))
    write_record(folder, record)


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write result.json."""
    with replacing(folder / RESULT) as path:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
