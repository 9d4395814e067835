"""The command line, run as a user runs it."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

Completed = subprocess.CompletedProcess[str]


def command(*args: object) -> list[str]:
    """The command line as the installed script runs it."""
    return [str(Path(sys.executable).with_name("gistgnn")), *map(str, args)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def run_command(folder: Path, *args: object, timeout: float = 120) -> Completed:
    """Run `gistgnn` in a process of its own, forked from one that has imported torch and all else already.

    Args:
        folder: the working directory.
        args: of the command.
        timeout: in seconds.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    words = [*map(str, args)]
    with tempfile.TemporaryDirectory() as written:
        process = ready().Process(target=_main, args=(words, folder, environment(), Path(written)))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        out, err = ((Path(written) / name).read_text() for name in ("out", "err"))
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, out, err)


@cache
def ready() -> ForkServerContext:
    """The process that is forked: it has imported what commands import, and run nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gistgnn.cli.main", "gistgnn.run", "gistgnn.plots", "torch._dynamo"])
    return context


def _main(words: list[str], folder: Path, environ: dict[str, str], written: Path) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = ["gistgnn", *words]
    for number, name, mode in ((0, os.devnull, "r"), (1, written / "out", "w"), (2, written / "err", "w")):
        with open(name, mode) as file:
            os.dup2(file.fileno(), number)
    from gistgnn.cli.main import main

    sys.exit(main())
