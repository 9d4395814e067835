"""The files of a result: result.json, the model, curves.png and report.html."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gistgnn.report import REPORT, write_report
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.models import write_model
from gistgnn.storage.whole_files import replacing

RESULT, CURVES = "result.json", "curves.png"
VERSION = 1  # of result.json


def write_result(
    folder: Path, record: dict[str, Any], model: nn.Module, more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Write the files of a result, result.json last: if it is there, the other files are there too.

    Args:
        folder: made if it is not there.
        record: what result.json holds.
        model: its tensors are written as safetensors.
        more: the digests of other files of the run that are in the folder, by name.

    Returns:
        The record with what is added: the version, the digests of the files, and the checksum.

    Raises:
        InputError: the folder cannot be written.
    """
    from gistgnn.report.run_page import plot_curves, run_page  # matplotlib is slow to import

    files = write_model(folder, model.state_dict())
    with replacing(folder / CURVES) as path:
        plot_curves(record, path)
    write_report(folder / REPORT, run_page(record))
    listed = {"version": VERSION, **record, "files": {**files, **(more or {})}}
    write_json(folder / RESULT, listed, indent=2)
    return read_json(folder / RESULT, dict[str, Any], "save it again")
