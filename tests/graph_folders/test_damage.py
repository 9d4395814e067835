"""Graph folders that are changed, foreign or incomplete; values that no reader may trust."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gistgnn import load
from gistgnn.graphs.conversion import convert, partition_folder
from gistgnn.graphs.doubts import note_doubts
from gistgnn.graphs.folder import MANIFEST, Manifest
from gistgnn.sampling import whole_graph
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.refusals import refused

from .folders import some_graph, write_value


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_clustered(some_graph(edge_weight=np.ones(300)), 4, tmp_path / "made")
    return tmp_path / "made"


def test_an_array_that_is_another_one_is_refused(made: Path) -> None:
    for name in Manifest.read(made).arrays:
        path = made / f"{name}.npy"
        content_before = path.read_bytes()
        array = np.load(path)
        # The other array has the same size.
        np.save(path, array.view({1: np.int8, 4: np.uint32, 8: np.float64}[array.itemsize]))
        with refused(str(path), "is not the", MANIFEST, "convert the graph again"):
            load(made)
        np.save(path, np.empty(array.shape, object), allow_pickle=True)
        with refused(str(path)):
            load(made)
        path.write_bytes(content_before)


CHANGES: tuple[Callable[[dict[str, Any]], Any], ...] = (
    lambda record: record.update(nodes="40"),
    lambda record: record.update(version=1),
    lambda record: record["arrays"].pop("col"),
    lambda record: record["arrays"].update({"../y": record["arrays"]["y"]}),
    lambda record: record["arrays"]["x"].update(shape=[-1, 3]),
    lambda record: record["arrays"].update(x=3),
)


def test_a_manifest_that_was_changed_is_refused(made: Path) -> None:
    path = made / MANIFEST
    text_before = path.read_text()
    manifest = Manifest.read(made)
    path.write_text(text_before.replace("\n ", "\n\t", 1))  # a blank for another blank
    with refused(MANIFEST):
        load(made)
    for change in CHANGES:
        record = json.loads(text_before)
        change(record)
        path.write_text(json.dumps(record))
        with refused(str(path), "is damaged", "convert the graph again"):
            load(made)
    msgspec.structs.replace(manifest, name="a" * 256).write(made)  # nothing can show it
    with refused("Expected `str` of length <= 255 - at `$.name`"):
        load(made)
    path.unlink()
    with refused(f"{made}", MANIFEST, "gistgnn convert"):
        load(made)


VALUES = [
    ("rowptr", 0, 1, "does not rise from 0 to 300"),
    ("rowptr", 3, 10**6, "does not rise from 0 to 300"),
    ("y", 3, 3, "holds a label outside of -1 to 2"),
    ("y", slice(None), -1, "has a node without a label in a split"),
    ("split", 3, 4, "holds another number than 0 to 3"),
    ("cluster_ptr", 2, 10, "does not rise strictly from 0 to 40"),
]


def test_wrong_values_of_nodes_are_refused_when_a_folder_is_opened(made: Path) -> None:
    for name, index, value, message in VALUES:
        path = made / f"{name}.npy"
        content_before = path.read_bytes()
        write_value(path, index, value)
        with refused(".npy is damaged: it ", message):
            load(made)
        path.write_bytes(content_before)


def test_an_edge_from_no_node_is_refused_when_it_is_read(tmp_path: Path) -> None:
    convert(some_graph(), tmp_path / "graph")
    for value in (-1, 40, 2**31 - 1, -(2**31)):
        write_value(tmp_path / "graph" / "col.npy", 150, value)
        with refused(f"node {value}", "0 to 39"):
            whole_graph(load(tmp_path / "graph"))
        with refused(f"an edge begins at node {value}"):
            note_doubts(load(tmp_path / "graph"))
        for method in ("metis", "stream", "random"):
            with refused("an edge begins at", "convert the graph again"):
                partition_folder(tmp_path / "graph", tmp_path / "out", 3, method=method)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
