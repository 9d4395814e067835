"""result.json, changed as a test needs it."""

from pathlib import Path
from typing import Any

from gistgnn.io.records import write_record
from gistgnn.session.saved_result import RESULT, VERSION


def rewrite(folder: Path, record: dict[str, Any]) -> None:
    """Write a run's result.json with a checksum that fits."""
    write_record(folder / RESULT, record, VERSION)
