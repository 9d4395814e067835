"""Runs a command, and prints its seconds and the peaks of its anonymous and mapped memory.

    python -m benchmarks.peak_memory [--cgroup GIB] \\
        gistgnn convert synthetic:papers100m@0.1 papers --memory 2

Anonymous memory is what a process allocates; mapped pages of files belong to the page cache, and
the system takes them back. The memory of all processes that the command starts is added up every
0.05 s. ``--cgroup`` runs the command in a control group (v1, as root) whose limit includes the page
cache.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

PAUSE = 0.05  # seconds between two looks
GROUPS = Path("/sys/fs/cgroup/memory")


def main() -> None:
    """Run the command, and print a line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peak_memory", description=__doc__)
    parser.add_argument("--cgroup", type=float, metavar="GIB", help="limit of the control group")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    started = time.perf_counter()
    anonymous = 0
    mapped = 0
    with group(options.cgroup) as tasks:
        process = subprocess.Popen(
            options.command, preexec_fn=lambda: tasks and tasks.write_text(str(os.getpid()))
        )
        while process.poll() is None:
            memory_of_processes = [resident(pid) for pid in family(process.pid)]
            anonymous = max(anonymous, sum(part for part, _ in memory_of_processes))
            mapped = max(mapped, sum(part for _, part in memory_of_processes))
            time.sleep(PAUSE)
    seconds = time.perf_counter() - started
    peaks = f"{anonymous / 2**30:.2f} GiB anonymous, {mapped / 2**30:.2f} GiB mapped"
    print(f"{seconds:.1f} s, {peaks}, exit status {process.returncode}", file=sys.stderr)
    sys.exit(process.returncode)


def family(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return []


def resident(pid: int) -> tuple[int, int]:
    """Return the bytes of a process's anonymous and mapped resident memory."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines())
        anonymous, files, shared = (
            int(values.get(name, "0 kB").split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")
        )
        return 1024 * anonymous, 1024 * (files + shared)
    return 0, 0


@contextlib.contextmanager
def group(gibibytes: float | None) -> Iterator[Path | None]:
    """Make a control group with a limit of memory; yield the file that takes its processes."""
    if gibibytes is None:
        yield None
        return
    folder = GROUPS / f"gistgnn-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(int(gibibytes * 2**30)))
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


if __name__ == "__main__":
    main()
