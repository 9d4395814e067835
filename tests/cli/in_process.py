"""The command line in this process, as a process of its own would take seconds to import torch."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gistgnn.cli.main import main
from tests.helpers.commands import Forked

Result = TypeVar("Result")


def run(*args: object) -> int:
    """Run `gistgnn` and return its exit status."""
    try:
        return main([*map(str, args)])
    except SystemExit as end:  # as argparse refuses
        return int(end.code or 0)


def refused(
    capsys: pytest.CaptureFixture[str], message: str, *args: object, leaves: Path | None = None
) -> None:
    """Expect exit status 2, one line on standard error and nothing on standard output.

    No file appears in the folder `leaves`.
    """
    files_before = sorted(leaves.iterdir()) if leaves else []
    capsys.readouterr()
    status = run(*args)
    out, err = capsys.readouterr()
    assert status == 2, err
    assert message in err
    assert err.startswith("gistgnn")
    assert err.count("\n") == 1, err
    assert out == ""
    if leaves:
        assert sorted(leaves.iterdir()) == files_before


def wait_until(find: Callable[[], Result], process: subprocess.Popen[str] | Forked) -> Result:
    """Return what `find` finds, once it is something; the process has to run until then."""
    deadline = time.monotonic() + 120
    while not (result := find()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return result
