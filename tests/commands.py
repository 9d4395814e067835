"""The command line, run as a user runs it."""

import os
import sys
from pathlib import Path


def command(*args: object) -> list[str]:
    """The command line as the installed script runs it."""
    return [str(Path(sys.executable).with_name("gistgnn")), *map(str, args)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
