"""A conversion that is killed, interrupted, or finds the disk full, and the same command again."""

import errno
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from gistgnn import load
from gistgnn.graphs import Graph
from gistgnn.graphs.conversion import convert, nodes, sort
from gistgnn.graphs.on_disk import npy, verify
from gistgnn.storage.folder_lock import locked
from gistgnn.storage.whole_files import TEMPORARY
from gistgnn.utils.process_memory import peak_memory_bytes
from tests.helpers.commands import Forked
from tests.helpers.logs import logged
from tests.helpers.refusals import refused

from .folders import assert_same, csv_tables, npz, small_steps, some_graph

NODES, EDGES = 3000, 60_000


def slowly(source: str, place: str) -> None:
    """Convert in many small steps, so that a kill finds it anywhere."""
    Path(place).with_name("started").touch()
    with small_steps(edges=2000, keys=3000, features=4000, buckets=40):
        convert(source, place, dtype="int8", undirected=True)


def work_folder(made: Path) -> Path:
    return made.with_name(f"{TEMPORARY}convert-{made.name}")


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_conversion_goes_on_to_the_same_folder(seed: int, tmp_path: Path) -> None:
    graph = some_graph(NODES, EDGES)
    path, made = npz(graph, tmp_path / "graph.npz"), tmp_path / "made"
    rng = random.Random(seed)
    kills = 0
    while not made.exists():
        (tmp_path / "started").unlink(missing_ok=True)
        process = Forked(tmp_path, slowly, str(path), str(made))
        while process.poll() is None and not (tmp_path / "started").exists():
            time.sleep(0.002)
        time.sleep(rng.random() * (0.4 if kills else 0.02))  # one kill at least
        if process.poll() is None and kills < 6:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        assert not made.exists() or verify(made)  # nothing is half there
    slowly(str(path), str(tmp_path / "unbroken"))
    for file in (tmp_path / "unbroken").iterdir():
        assert (made / file.name).read_bytes() == file.read_bytes(), file.name
    assert kills
    assert not work_folder(made).exists()


class KilledError(BaseException):
    """Ends a process without its tidying up, as SIGKILL does."""


def kill_at(patch: pytest.MonkeyPatch, call: int) -> None:
    """Let the call-th write or record fail as a kill would."""
    left = [call]

    def counted(real: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
            return real(*args, **kwargs)

        return run

    patch.setattr(npy.ArrayWriter, "append", counted(npy.ArrayWriter.append))
    patch.setattr(npy.ArrayWriter, "finish", counted(npy.ArrayWriter.finish))
    patch.setattr("gistgnn.graphs.on_disk.making.write_record", counted(sort.Making.record.__globals__["write_record"]))
    patch.setattr(os, "rename", counted(os.rename))


def test_a_kill_at_every_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a kill loses nothing that the system holds
    path, calls, dtype = npz(some_graph(), tmp_path / "graph.npz"), 0, "int8"
    with small_steps(edges=100, keys=60, features=300, buckets=4):
        convert(path, tmp_path / "unbroken", dtype=dtype)
        while True:
            made = tmp_path / f"made{calls}"
            try:
                with pytest.MonkeyPatch.context() as patch:
                    kill_at(patch, calls)
                    convert(path, made, dtype=dtype)
                break
            except KilledError:
                assert not made.exists()
            convert(path, made, dtype=dtype)
            for file in (tmp_path / "unbroken").iterdir():
                assert (made / file.name).read_bytes() == file.read_bytes(), (calls, file.name)
            calls += 1
    assert calls > 30


def test_finished_passes_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(some_graph(), tmp_path / "graph.npz")
    real, sorted_ = sort._sorted, []

    def interrupted(bucket: int, *args: Any) -> Any:
        sorted_.append(bucket)
        if bucket == 1 and sorted_.count(1) == 1:
            raise KeyboardInterrupt
        return real(bucket, *args)

    monkeypatch.setattr(sort, "_sorted", interrupted)
    with small_steps(), logged() as notes:
        with pytest.raises(KeyboardInterrupt):
            convert(path, tmp_path / "made")
        assert any("run the same command again to go on" in note for note in notes)
        made = convert(path, tmp_path / "made")
    assert list(made.seconds) == ["sort"]
    assert sorted_ == [0, 1, 1, 2]
    assert any("going on with" in note for note in notes)
    assert_same(load(tmp_path / "made"), some_graph())


def test_an_interrupted_first_pass_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(nodes, "checked_features", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(some_graph(), tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_another_source_or_option_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = some_graph(), some_graph(seed=1)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gistgnn.graphs.conversion.passes.sort_buckets", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(first, tmp_path / "made")
    assert work_folder(tmp_path / "made").exists()
    made = convert(second, tmp_path / "made")
    assert list(made.seconds) == ["nodes", "edges", "sort"]
    assert_same(load(tmp_path / "made"), second)


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_full_disk_is_one_line_and_the_work_stays(at: int, tmp_path: Path) -> None:
    graph, left = some_graph(), [at]
    edges, table = csv_tables(graph, tmp_path)
    real = npy.ArrayWriter.append

    def full(writer: npy.ArrayWriter, values: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(writer, values)

    with small_steps():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(npy.ArrayWriter, "append", full)
            with refused(
                f"the disk of {tmp_path / 'made'} is full: the graph takes about", "make room, and run the same"
            ):
                convert(edges, tmp_path / "made", nodes=table)
        assert not (tmp_path / "made").exists()
        convert(edges, tmp_path / "made", nodes=table)
    assert_same(load(tmp_path / "made"), graph)


def test_a_full_disk_while_edges_are_sorted_into_files(tmp_path: Path) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gistgnn.graphs.conversion.buckets.append", full)
        with refused("is full: the graph takes about", "of it are written"):
            convert(some_graph(), tmp_path / "made")
    convert(some_graph(), tmp_path / "made")
    assert_same(load(tmp_path / "made"), some_graph())


def test_a_disk_that_is_too_small_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with refused("the graph takes about", "of the disk while it is made, 1,000 bytes are free", "or a smaller --dtype"):
        convert(some_graph(), tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("cannot write", str(tmp_path / "file")):
        convert(some_graph(), tmp_path / "file" / "made")
    with refused("is there already, and is not this graph"):
        convert(some_graph(), tmp_path / "file")


def test_two_commands_at_once(tmp_path: Path) -> None:
    with locked(tmp_path / "made", beside=True):
        process = Forked(tmp_path, second, str(tmp_path / "made"))
        assert process.communicate()[0].startswith(f"{tmp_path / 'made'} is being written by process {os.getpid()}")
    convert(some_graph(), tmp_path / "made")
    assert isinstance(load(tmp_path / "made"), Graph)


def second(made: str) -> None:
    with refused("is being written by") as _:
        convert(some_graph(), made)
    try:
        convert(some_graph(), made)
    except ValueError as error:
        print(error)


def test_memory_is_kept_to(tmp_path: Path) -> None:
    """A graph of twice the memory that is allowed beside the process."""
    rows, rng = 400_000, np.random.default_rng(0)
    x = np.lib.format.open_memmap(tmp_path / "zeros.npy", "w+", np.float32, (rows, 200))
    edges, labels = rng.integers(0, rows, (2, 1_000_000), np.int32), np.arange(rows, dtype=np.int16) % 5
    np.savez(tmp_path / "graph.npz", x=x, edge_index=edges, y=labels, train=[0], val=[1], test=[2])
    process = Forked(tmp_path, convert_within, str(tmp_path))
    out, err = process.communicate(240)
    assert process.returncode == 0, err
    held, peak, allowed = map(int, out.split())
    assert held < peak < allowed
    assert x.nbytes > 2 * (allowed - held)


def convert_within(place: str) -> None:
    held = psutil.Process().memory_info().rss
    allowed = held + 150 * 2**20
    convert(Path(place) / "graph.npz", Path(place) / "made", memory=allowed)
    print(held, peak_memory_bytes(torch.device("cpu")), allowed)
