"""Folders that are cut short, changed, foreign or incomplete."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gistgnn import load
from gistgnn.graphs.conversion import convert, partition_folder
from gistgnn.graphs.on_disk import npy, verify
from gistgnn.graphs.on_disk.manifest import BLOCK, MANIFEST
from gistgnn.graphs.on_disk.npy import HEADER, ArrayWriter
from gistgnn.storage.records import with_checksum
from tests.helpers.flips import flipped, some_bytes
from tests.helpers.refusals import refused

from .folders import assert_same, some_graph

ARRAYS = ("rowptr", "col", "x", "y", "split", "edge_weight")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs") / "whole"
    convert(some_graph(edge_weight=np.random.default_rng(0).random(300)), folder)
    return folder


@pytest.fixture
def made(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "made"))


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("size", [0, 5, HEADER, HEADER + 1, -1])
def test_a_file_that_is_cut_short_is_refused_at_once(name: str, size: int, made: Path) -> None:
    path = made / f"{name}.npy"
    data = path.read_bytes()
    path.write_bytes(data[:size])
    with refused(str(path), "convert the graph again"):
        load(made)
    path.write_bytes(data + b"\0")
    with refused(str(path), f"is too long: {len(data) + 1:,} bytes, not {len(data):,}"):
        load(made)
    path.unlink()
    with refused(f"{path} is missing"):
        load(made)
    path.mkdir()
    with refused(f"{path} is no regular file"):
        load(made)


@pytest.mark.parametrize("name", ARRAYS)
def test_every_flipped_byte_is_found(name: str, made: Path) -> None:
    path = made / f"{name}.npy"
    assert verify(made) > 0
    for place in some_bytes(path, 12):
        with flipped(path, place), refused(str(path)):
            verify(made)
    verify(made)


def test_every_flipped_byte_of_the_manifest_is_refused(made: Path) -> None:
    blanks = (made / MANIFEST).read_bytes().split()
    for place in some_bytes(made / MANIFEST, 40):
        with flipped(made / MANIFEST, place):
            if (made / MANIFEST).read_bytes().split() == blanks:
                load(made)  # a blank that is another blank
            else:
                with refused(MANIFEST):
                    load(made)


def test_the_place_of_the_damage_is_named(tmp_path: Path) -> None:
    with ArrayWriter(tmp_path / "x.npy", np.int64) as file:
        file.append(np.arange(BLOCK // 8))
        file.append(np.arange(3))
        stored = file.finish()
    assert len(stored.checksums) == 2
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.concatenate([np.arange(BLOCK // 8), np.arange(3)]))
    convert(some_graph(), tmp_path / "made")
    with (tmp_path / "made" / "col.npy").open("r+b") as raw:
        raw.seek(HEADER + 9)
        raw.write(b"\xee")
    with refused("col.npy is damaged: the checksum of its bytes 128 to", "convert the graph again"):
        verify(tmp_path / "made")
    load(tmp_path / "made")  # opening compares sizes alone


@pytest.mark.parametrize("name", ARRAYS)
def test_another_array_of_the_same_size_is_refused(name: str, made: Path) -> None:
    path = made / f"{name}.npy"
    array = np.load(path)
    other = {1: np.int8, 4: np.uint32, 8: np.float64}[array.itemsize]
    np.save(path, array.view(other))
    with refused(f"{path} holds {np.dtype(other)} of shape"):
        load(made)
    np.save(path, np.empty(array.shape, object), allow_pickle=True)
    with refused(str(path)):
        load(made)


def rewrite(made: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, and give it the right checksum."""
    record = json.loads((made / MANIFEST).read_text())
    change(record)
    record = {key: value for key, value in record.items() if key != "checksum"}
    (made / MANIFEST).write_text(json.dumps(with_checksum(record, record.pop("version"))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(nodes=41), "which does not fit the graph"),
        (lambda r: r.update(edges=0), "describes no graph"),
        (lambda r: r.update(task="other"), "describes no graph"),
        (lambda r: r.update(block=8), "describes no graph"),
        (lambda r: r.update(version=2), "is of version 2, this gistgnn reads 1"),
        (lambda r: r.pop("name"), "has no 'name'"),
        (lambda r: r["arrays"].pop("col"), "has no array col"),
        (lambda r: r["arrays"].update(z=r["arrays"]["y"]), "wrong entry for the array 'z'"),
        (lambda r: r["arrays"].update({"../y": r["arrays"]["y"]}), "wrong entry for the array '../y'"),
        (lambda r: r["arrays"]["x"].update(dtype="int8"), "wrong entry for the array 'x'"),
        (lambda r: r["arrays"]["x"].update(dtype="object"), "wrong entry for the array 'x'"),
        (lambda r: r["arrays"]["x"].update(shape=[-1, 3]), "wrong entry for the array 'x'"),
        (lambda r: r["arrays"]["x"].update(checksums=[]), "wrong entry for the array 'x'"),
        (lambda r: r["arrays"]["x"].update(checksums=[1]), "wrong entry for the array 'x'"),
        (lambda r: r["arrays"].update(x=3), "wrong entry for the array 'x'"),
        (lambda r: r["arrays"].update(x_scale=r["arrays"]["y"]), "wrong entry for the array 'x_scale'"),
    ],
)
def test_manifests_that_contradict_themselves(
    change: Callable[[dict[str, Any]], Any], message: str, made: Path
) -> None:
    rewrite(made, change)
    with refused(str(made / MANIFEST), message, "convert the graph again"):
        load(made)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("rowptr", 3, 10**6, "does not rise from 0 to 300"),
        ("col", 7, 40, "holds a node outside of 0 to 39"),
        ("col", 7, -1, "holds a node outside of 0 to 39"),
        ("col", 1, 39, "is not ascending within the edges of a node"),
        ("x", (3, 1), np.nan, "holds NaN or infinity"),
        ("y", 3, 3, "holds a label outside of -1 to 2"),
        ("y", slice(None), -1, "has an unlabelled node in a split"),
        ("split", 3, 4, "holds 4, expected 0 to 3"),
    ],
)
def test_wrong_values_with_right_checksums_are_found(
    name: str, place: Any, value: Any, message: str, made: Path
) -> None:
    array = np.load(made / f"{name}.npy")
    array[place] = value
    with ArrayWriter(made / f"{name}.npy", array.dtype, array.shape[1:]) as file:
        file.append(array)
        stored = file.finish()
    rewrite(made, lambda record: record["arrays"][name].update(checksums=stored.checksums))
    with refused(message, "it has the right checksum, so it was made wrong"):
        verify(made)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("cluster_ptr", 0, 1, "does not rise strictly from 0 to 40"),
        ("cluster_ptr", -1, 41, "does not rise strictly from 0 to 40"),
        ("cluster_ptr", 2, 10, "does not rise strictly from 0 to 40"),
        ("node", 3, 40, "holds a node outside of 0 to 39"),
        ("node", 3, -1, "holds a node outside of 0 to 39"),
        ("node", slice(0, 2), slice(1, None, -1), "is not ascending within a cluster"),
        ("node", slice(10, 20), slice(0, 10), "lacks node"),
    ],
)
def test_wrong_clusters_with_right_checksums_are_found(
    name: str, place: Any, value: Any, message: str, tmp_path: Path
) -> None:
    convert(some_graph(), tmp_path / "graph")
    made = tmp_path / "made"
    partition_folder(tmp_path / "graph", made, 4, method="random")
    verify(made)
    array = np.load(made / f"{name}.npy")
    array[place] = array[value].copy() if isinstance(value, slice) else value
    with ArrayWriter(made / f"{name}.npy", array.dtype) as file:
        file.append(array)
        stored = file.finish()
    rewrite(made, lambda record: record["arrays"][name].update(checksums=stored.checksums))
    with refused(f"{name}.npy: {message}", "it has the right checksum, so it was made wrong"):
        verify(made)


def test_a_rowptr_without_begin_or_end_is_refused_at_once(made: Path) -> None:
    array = np.load(made / "rowptr.npy")
    for place, value in ((0, 1), (-1, 299)):
        changed = array.copy()
        changed[place] = value
        with ArrayWriter(made / "rowptr.npy", array.dtype) as file:
            file.append(changed)
            file.finish()
        with refused("rowptr.npy is damaged: it does not rise from 0 to 300"):
            load(made)


def test_folders_that_are_no_graphs(tmp_path: Path) -> None:
    with refused(f"{tmp_path}: there is no {MANIFEST}; expected a folder that `gistgnn convert` has made"):
        load(tmp_path)


def test_an_array_larger_than_the_memory_is_mapped_without_room_for_writes(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses a mapping of more than its memory that could be written."""
    real = np.load

    def refuse_writes(path: Path, mmap_mode: str, allow_pickle: bool) -> Any:
        if mmap_mode == "c":
            raise OSError(12, "Cannot allocate memory")
        return real(path, mmap_mode=mmap_mode, allow_pickle=allow_pickle)

    monkeypatch.setattr(npy.np, "load", refuse_writes)
    graph = load(whole)
    monkeypatch.undo()
    assert_same(graph, some_graph(edge_weight=np.random.default_rng(0).random(300)))
