"""The command line without a process of its own, which would take seconds to import torch; waiting
for one.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gistgnn.cli.main import main
from tests.helpers.commands import Forked

Found = TypeVar("Found")


def run(*args: object) -> int:
    """Run `gistgnn` and return its exit status."""
    try:
        return main([*map(str, args)])
    except SystemExit as end:  # as argparse refuses
        return int(end.code or 0)


def refused(
    capsys: pytest.CaptureFixture[str], message: str, *args: object, leaves: Path | None = None
) -> None:
    """Expect exit status 2, one line on standard error, nothing on standard output, and no new file
    in a folder.
    """
    before = sorted(leaves.iterdir()) if leaves else []
    capsys.readouterr()
    status = run(*args)
    out, err = capsys.readouterr()
    assert status == 2, err
    assert message in err
    assert err.startswith("gistgnn")
    assert err.count("\n") == 1, err
    assert out == ""
    assert (sorted(leaves.iterdir()) if leaves else []) == before


def wait_until(find: Callable[[], Found], process: subprocess.Popen[str] | Forked) -> Found:
    """Return what `find` finds, once it is something; the process has to run until then."""
    deadline = time.monotonic() + 120
    while not (found := find()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found
