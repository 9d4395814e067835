"""Folders that are cut short, changed, foreign or incomplete; values that no reader may trust."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gistgnn import load
from gistgnn.graphs.conversion import convert, partition_folder
from gistgnn.graphs.folder import HEADER, MANIFEST, Manifest, verify
from gistgnn.sampling import whole_graph
from tests.helpers.flips import flipped, some_bytes
from tests.helpers.refusals import refused

from .folders import put, some_graph

ARRAYS = ("rowptr", "col", "x", "y", "split", "edge_weight", "node", "cluster_ptr")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    convert(some_graph(edge_weight=np.random.default_rng(0).random(300)), folder / "graph")
    partition_folder(folder / "graph", folder / "whole", 4, method="random")
    return folder / "whole"


@pytest.fixture
def made(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "made"))


@pytest.mark.parametrize("name", ARRAYS)
def test_a_file_that_is_cut_short_is_refused_at_once(name: str, made: Path) -> None:
    path = made / f"{name}.npy"
    data, array = path.read_bytes(), np.load(path)
    for content in (*(data[:size] for size in (0, 5, HEADER, HEADER + 1, -1)), data + b"\0"):
        path.write_bytes(content)
        with refused(str(path), "convert the graph again"):
            load(made)
    np.save(path, array.view({1: np.int8, 4: np.uint32, 8: np.float64}[array.itemsize]))  # another of the same size
    with refused(str(path), "is not the", MANIFEST):
        load(made)
    np.save(path, np.empty(array.shape, object), allow_pickle=True)
    with refused(str(path)):
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


def test_a_manifest_that_was_changed_is_refused(made: Path) -> None:
    path = made / MANIFEST
    whole = path.read_text()
    for place in some_bytes(path, 60):
        with flipped(path, place), refused(MANIFEST):
            load(made)
    path.write_text(whole.replace("\n ", "\n\t", 1))  # a blank for another blank
    with refused(MANIFEST):
        load(made)
    changes: tuple[Callable[[dict[str, Any]], Any], ...] = (
        lambda record: record.update(nodes="40"),
        lambda record: record.update(task="other"),
        lambda record: record.update(version=1),
        lambda record: record.pop("name"),
        lambda record: record["arrays"].pop("col"),
        lambda record: record["arrays"].update({"../y": record["arrays"]["y"]}),
        lambda record: record["arrays"]["x"].update(shape=[-1, 3]),
        lambda record: record["arrays"].update(x=3),
    )
    for change in changes:
        record = json.loads(whole)
        change(record)
        path.write_text(json.dumps(record))
        with refused(str(path), "is damaged", "convert the graph again"):
            load(made)


def test_a_name_that_nothing_can_show_is_refused(made: Path) -> None:
    msgspec.structs.replace(Manifest.read(made), name="a" * 256).write(made)
    with refused("Expected `str` of length <= 255 - at `$.name`"):
        load(made)


def test_folders_that_are_no_graphs(tmp_path: Path) -> None:
    with refused(f"{tmp_path} has no {MANIFEST}; expected a folder of `gistgnn convert`"):
        load(tmp_path)


VALUES = [
    ("rowptr", 0, 1, "does not rise from 0 to 300"),
    ("rowptr", 3, 10**6, "does not rise from 0 to 300"),
    ("rowptr", -1, 299, "does not rise from 0 to 300"),
    ("y", 3, 3, "holds a label outside of -1 to 2"),
    ("split", 3, 4, "holds another number than 0 to 3"),
    ("cluster_ptr", 0, 1, "does not rise strictly from 0 to 40"),
    ("cluster_ptr", 2, 10, "does not rise strictly from 0 to 40"),
]


def test_wrong_values_of_nodes_are_refused_when_a_folder_is_opened(made: Path) -> None:
    for name, place, value, message in VALUES:
        path = made / f"{name}.npy"
        whole = path.read_bytes()
        put(path, place, value)
        with refused(f"{path} is damaged: it {message}"):
            load(made)
        path.write_bytes(whole)
    put(made / "y.npy", slice(None), -1)
    with refused("split.npy is damaged", "has a node without a label in a split"):
        load(made)


def test_an_edge_from_no_node_is_refused_when_it_is_read(tmp_path: Path) -> None:
    convert(some_graph(), tmp_path / "graph")
    for value in (-1, 40, 2**31 - 1, -(2**31)):
        put(tmp_path / "graph" / "col.npy", 150, value)
        with refused(f"an edge begins at node {value}, expected 0 to 39"):
            whole_graph(load(tmp_path / "graph"))
        for method in ("metis", "stream", "random"):
            with refused("an edge begins at", "convert the graph again"):
                partition_folder(tmp_path / "graph", tmp_path / "out", 3, method=method)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
