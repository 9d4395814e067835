"""A partition of a graph folder that is killed goes on, and it keeps to its memory."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from gistgnn.graphs import metis
from gistgnn.graphs.conversion import convert, partition_folder, renumbering
from gistgnn.graphs.on_disk import npy, verify
from gistgnn.graphs.streaming import stages
from gistgnn.storage.whole_files import TEMPORARY
from gistgnn.utils.process_memory import peak_memory_bytes
from tests.graphs.test_streaming import in_process
from tests.helpers.commands import Forked

from .folders import small_steps, some_graph
from .test_clustered import with_data


def slowly(source: str, made: str) -> None:
    """Partition in many small steps, so that a kill finds it anywhere."""
    Path(made).with_name("started").touch()
    with small_steps(edges=2000, keys=3000, features=4000), pytest.MonkeyPatch.context() as patch:
        patch.setattr(metis, "partition", in_process)
        partition_folder(source, made, 40, method="stream")


@pytest.mark.parametrize("seed", range(2))
def test_killed_again_and_again_it_goes_on_to_the_same_folder(seed: int, tmp_path: Path) -> None:
    source, made = tmp_path / "graph", tmp_path / "made"
    convert(some_graph(3000, 60_000), source)
    rng, kills = random.Random(seed), 0
    while not made.exists():
        (tmp_path / "started").unlink(missing_ok=True)
        process = Forked(tmp_path, slowly, str(source), str(made))
        while process.poll() is None and not (tmp_path / "started").exists():
            time.sleep(0.002)
        time.sleep(rng.random() * (0.3 if kills else 0.02))  # one kill at least
        if process.poll() is None and kills < 8:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        assert not made.exists() or verify(made)  # nothing is half there
    slowly(str(source), str(tmp_path / "unbroken"))
    for file in (tmp_path / "unbroken").iterdir():
        assert (made / file.name).read_bytes() == file.read_bytes(), file.name
    assert kills
    assert not list(tmp_path.glob(f"{TEMPORARY}convert*"))


class KilledError(BaseException):
    """Ends a process without its tidying up, as SIGKILL does."""


def test_a_kill_at_every_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a kill loses nothing that the system holds
    monkeypatch.setattr(metis, "partition", in_process)
    monkeypatch.setattr(stages, "_EDGES", (50, 50))
    convert(with_data(some_graph(), 1), tmp_path / "graph", dtype="int8")
    left = [10**9]

    def counted(real: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
            return real(*args, **kwargs)

        return run

    with small_steps(edges=100, keys=100, features=300):
        partition_folder(tmp_path / "graph", tmp_path / "unbroken", 5, method="stream")
        for name in ("append", "finish", "sync"):
            monkeypatch.setattr(npy.ArrayWriter, name, counted(getattr(npy.ArrayWriter, name)))
        monkeypatch.setattr(renumbering.Ranges, "append", counted(renumbering.Ranges.append))
        writing = renumbering.Making.record.__globals__["write_record"]
        monkeypatch.setattr("gistgnn.graphs.on_disk.making.write_record", counted(writing))
        monkeypatch.setattr(os, "rename", counted(os.rename))
        calls = 0
        while True:
            made, left[0] = tmp_path / "made", calls
            try:
                partition_folder(tmp_path / "graph", made, 5, method="stream")
                break
            except KilledError:
                assert not made.exists()
            left[0] = 10**9
            partition_folder(tmp_path / "graph", made, 5, method="stream")
            for file in (tmp_path / "unbroken").iterdir():
                assert (made / file.name).read_bytes() == file.read_bytes(), (calls, file.name)
                (made / file.name).unlink()
            made.rmdir()
            calls += 3
    assert calls > 60


def test_memory_is_kept_to(tmp_path: Path) -> None:
    """A graph of twice the memory that is allowed beside the process."""
    rows, rng = 300_000, np.random.default_rng(0)
    x = np.lib.format.open_memmap(tmp_path / "zeros.npy", "w+", np.float32, (rows, 200))
    edges, labels = rng.integers(0, rows, (2, 300_000), np.int32), np.arange(rows, dtype=np.int16) % 5
    np.savez(tmp_path / "graph.npz", x=x, edge_index=edges, y=labels, train=[0], val=[1], test=[2])
    convert(tmp_path / "graph.npz", tmp_path / "graph")
    process = Forked(tmp_path, partition_within, str(tmp_path))
    out, err = process.communicate(240)
    assert process.returncode == 0, err
    held, peak, allowed = map(int, out.split())
    assert held < peak < allowed
    assert x.nbytes > 1.5 * (allowed - held)


def partition_within(place: str) -> None:
    held = psutil.Process().memory_info().rss
    allowed = held + 140 * 2**20
    stages.PAIRS, stages._BLOCK_BYTES = 2**17, 2**25
    partition_folder(Path(place) / "graph", Path(place) / "made", 400, method="stream", memory=allowed)
    print(held, peak_memory_bytes(torch.device("cpu")), allowed)
