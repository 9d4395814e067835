"""result.json, changed as a test needs it."""

from pathlib import Path
from typing import Any

from gistgnn.io.json_files import write_json
from gistgnn.session.saved_result import RESULT


def rewrite(folder: Path, record: dict[str, Any]) -> None:
    """Write a run's result.json with a checksum that fits."""
    write_json(folder / RESULT, {name: value for name, value in record.items() if name != "checksum"})
