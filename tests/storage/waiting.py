"""Waiting for another process."""

import time
from pathlib import Path

from tests.helpers.commands import Forked


def wait_for(process: Forked, folder: Path, pattern: str) -> None:
    """Wait until the process has made a file in the folder."""
    until = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
