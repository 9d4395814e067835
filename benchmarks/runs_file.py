"""The file in which a benchmark writes down every finished run, so that it can go on where it was stopped."""

import json
from pathlib import Path
from typing import Any

from gistgnn.storage.whole_files import replacing

FILE = "runs.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the runs in a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append(path: Path, run: dict[str, Any]) -> None:
    """Add a run to the file. The file is replaced as a whole: it never has part of a line."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    with replacing(path) as temporary:
        temporary.write_text(f"{text}{json.dumps(run, ensure_ascii=False)}\n", encoding="utf-8")
