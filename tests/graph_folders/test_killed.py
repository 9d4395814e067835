"""Conversions and partitions that are killed or find the disk full leave nothing.

The same command starts again.
"""

import contextlib
import errno
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from gistgnn import load
from gistgnn.errors import InputError
from gistgnn.graphs import metis
from gistgnn.graphs.conversion import convert, partition_folder
from gistgnn.graphs.folder import ArrayWriter, verify
from gistgnn.storage.whole_files import TEMPORARY
from gistgnn.utils.process_memory import held_bytes
from tests.graphs.samples import assert_equal
from tests.helpers.commands import Forked
from tests.helpers.refusals import refused

from .folders import csv_tables, npz, small_steps, some_graph


def slowly(root: str) -> None:
    """Convert and partition in many small steps, so that a kill finds it anywhere."""
    folder = Path(root)
    (folder / "started").touch()
    with small_steps(numbers=300, edges=2000), pytest.MonkeyPatch.context() as patch:
        patch.setattr(metis, "metis_clusters", metis.partition_here)
        if not (folder / "made").exists():
            convert(
                folder / "edges.csv", folder / "made", nodes=folder / "nodes.csv", undirected=True
            )
        partition_folder(folder / "made", folder / "clusters", 40, method="stream")


def is_absent_or_complete(folder: Path) -> bool:
    """Whether a folder is not there, or has files that all fit their checksums."""
    return not folder.exists() or verify(folder) > 0


def test_a_kill_leaves_nothing_half_made(tmp_path: Path) -> None:
    csv_tables(some_graph(3000, 60_000), tmp_path)
    rng = random.Random(0)
    kills = 0
    while not (tmp_path / "clusters").exists():
        (tmp_path / "started").unlink(missing_ok=True)
        process = Forked(tmp_path, slowly, str(tmp_path))
        while process.poll() is None and not (tmp_path / "started").exists():
            time.sleep(0.002)
        time.sleep(rng.random() * (0.6 if kills else 0.02))  # one kill at least
        if process.poll() is None and kills < 4:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        assert is_absent_or_complete(tmp_path / "made")
        assert is_absent_or_complete(tmp_path / "clusters")
    assert kills
    assert not list(tmp_path.glob(f"{TEMPORARY}convert*"))
    (tmp_path / "other").mkdir()
    csv_tables(some_graph(3000, 60_000), tmp_path / "other")
    slowly(str(tmp_path / "other"))
    for name in ("made", "clusters"):
        for file in (tmp_path / "other" / name).iterdir():
            assert (tmp_path / name / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), InputError, "No space left"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
    ids=["failure0", "failure1"],
)
def test_a_failure_at_every_write_leaves_nothing(
    failure: BaseException,
    error: type[BaseException],
    message: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = npz(some_graph(), tmp_path / "graph.npz")
    writes = 0
    writes_allowed = 10**6

    def failing(write: Any) -> Any:
        """The function, which fails once as many writes were made as are allowed."""

        def counted(*args: Any) -> Any:
            nonlocal writes
            if writes == writes_allowed:
                raise failure
            writes += 1
            return write(*args)

        return counted

    for name in ("append", "finish"):
        monkeypatch.setattr(ArrayWriter, name, failing(getattr(ArrayWriter, name)))
    convert(path, tmp_path / "whole")
    assert_equal(load(tmp_path / "whole"), some_graph())
    all_writes = writes
    assert all_writes > 8
    for number in range(all_writes):
        writes = 0
        writes_allowed = number
        with pytest.raises(error, match=message):
            convert(path, tmp_path / "made")
        assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.npz", "whole"]


def test_another_process_that_makes_the_folder_is_refused(tmp_path: Path) -> None:
    # The lock is not the singleton of this process, but as another one has it.
    with FileLock(tmp_path / ".gistgnn-made.lock"):
        (tmp_path / ".gistgnn-made.lock").write_text("process 7")
        with refused("made is being written by process 7", "choose another folder"):
            convert(some_graph(), tmp_path / "made")


ALLOWED = 300 * 2**20  # bytes beside those of the process


def within_memory(root: str, command: str) -> None:
    """Convert or partition a graph of more than the memory that is allowed beside the process."""
    folder = Path(root)
    allowed = held_bytes() + ALLOWED
    if command == "convert":
        convert("synthetic:papers100m@0.008", folder / "made", memory=allowed)
    else:
        partition_folder(folder / "made", folder / "clusters", 300, method="random", memory=allowed)
    print(allowed)


def test_no_more_memory_is_taken_than_is_allowed(tmp_path: Path) -> None:
    for command in ("convert", "partition"):  # a process for each, as on the command line
        process = Forked(tmp_path, within_memory, str(tmp_path), command)
        peak = 0
        while process.poll() is None:
            with contextlib.suppress(OSError):  # it has just ended
                peak = max(peak, held_bytes(process._process.pid))
            time.sleep(0.02)
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert int(out) - ALLOWED < peak < int(out)
    assert sum(file.stat().st_size for file in (tmp_path / "made").iterdir()) > 1.5 * ALLOWED
    assert np.load(tmp_path / "clusters" / "x.npy", mmap_mode="r").shape == (888_480, 128)
