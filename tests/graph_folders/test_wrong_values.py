"""Damaged numbers of nodes, edges and classes are refused where they are used: nothing is read that they point to."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gistgnn import load
from gistgnn.cli.main import main
from gistgnn.graphs import metis
from gistgnn.graphs.conversion import convert, partition_folder
from gistgnn.graphs.on_disk import verify
from gistgnn.graphs.on_disk.clustered import numbers_before
from gistgnn.graphs.on_disk.making import Making
from gistgnn.sampling import whole_graph
from gistgnn.storage.whole_files import TEMPORARY
from tests.graphs.test_streaming import in_process
from tests.helpers.refusals import refused

from .folders import some_graph

N = 40


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    convert(some_graph(N), tmp_path / "graph")
    return tmp_path / "graph"


@pytest.fixture
def clusters(graph: Path) -> Path:
    partition_folder(graph, graph.with_name("clusters"), 4, method="random")
    return graph.with_name("clusters")


def put(path: Path, place: Any, value: int) -> None:
    """Change a value; the header and the size stay."""
    array = np.load(path)
    begin = path.stat().st_size - array.nbytes
    array[place] = value
    path.write_bytes(path.read_bytes()[:begin] + array.tobytes())


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("rowptr", 3, 10**6, "does not rise from 0 to 210"),
        ("rowptr", 39, 0, "does not rise from 0 to 210"),
        ("rowptr", 3, -1, "does not rise from 0 to 210"),
        ("y", 3, 3, "holds a label outside of -1 to 2"),
        ("y", 3, 2**62, "holds a label outside of -1 to 2"),
        ("y", slice(None), -1, "has an unlabelled node in a split"),
        ("split", 3, 4, "holds 4, expected 0 to 3"),
    ],
)
@pytest.mark.parametrize("in_clusters", [False, True])
def test_wrong_values_of_nodes_are_refused_when_a_folder_is_opened(
    name: str, place: Any, value: int, message: str, in_clusters: bool, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue("clusters" if in_clusters else "graph")
    load(folder)
    put(folder / f"{name}.npy", place, value)
    with refused(str(folder), f"npy is damaged: it {message}"):
        load(folder)


@pytest.mark.parametrize("value", [-1, N, 2**31 - 1, -(2**31)])
def test_an_edge_from_no_node_is_refused_when_it_is_read(value: int, graph: Path, clusters: Path) -> None:
    for folder in (graph, clusters):
        put(folder / "col.npy", 150, value)
    with refused(f"an edge begins at node {value}, expected 0 to 39"):
        whole_graph(load(graph))
    batch = whole_graph(load(clusters))
    with refused(f"an edge begins at node {value}"):
        batch.adj.rows("mean", slice(0, N))
    with refused(f"an edge begins at node {value}"):
        batch.in_memory()
    with refused("col holds a node outside of 0 to 39"):
        partition_folder(graph, graph.with_name("out"), 3, method="metis")


def test_predictions_do_not_take_damaged_numbers(
    clusters: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clusters.parent)
    words = f"--dataset {clusters} --sampler clusters --clusters-per-batch 2 --hidden 4 --sub-gcns 2 --epochs 2"
    assert main(["train", *words.split(), "--device", "cpu", "--out", "run"]) == 0
    put(clusters / "node.npy", 3, 7)
    found = load(clusters)
    assert found.folder is not None
    with refused(f"{clusters / 'node.npy'} is damaged"):
        numbers_before(found.folder)
    capsys.readouterr()
    assert main(["predict", "run", "--output", "classes.csv", "--device", "cpu"]) == 2
    assert "node.npy is damaged" in capsys.readouterr().err
    assert not Path("classes.csv").exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_the_place_that_it_leads_to(there: bool, graph: Path) -> None:
    behind, link = graph.with_name("behind"), graph.with_name("link")
    if there:
        behind.mkdir()
    link.symlink_to("behind")
    partition_folder(graph, link, 4, method="random")
    assert link.is_symlink()
    assert verify(behind)
    assert not partition_folder(graph, link, 4, method="random").seconds  # it is there already


def test_a_link_to_itself_and_what_is_in_the_way_are_refused(graph: Path) -> None:
    link = graph.with_name("link")
    link.symlink_to("link")
    with refused("link is a link that leads back to itself"):
        partition_folder(graph, link, 4, method="random")
    work = graph.with_name(f"{TEMPORARY}convert-out")
    os.mkfifo(work)
    with refused(str(work), "is in the way, and is no folder: remove it"):
        partition_folder(graph, graph.with_name("out"), 4, method="random")
    work.unlink()
    (graph.with_name("precious")).mkdir()
    work.symlink_to("precious")
    with refused(str(work), "is in the way"):
        partition_folder(graph, graph.with_name("out"), 4, method="random")
    assert graph.with_name("precious").is_dir()


class KilledError(BaseException):
    """Ends a call without its tidying up."""


@pytest.mark.parametrize(
    ("after", "pattern"),
    [
        ("stages", "stage-*"),
        ("clusters done", "node.npy"),
        ("nodes apart done", "x-*"),
        ("edges apart done", "col-*"),
        ("edges done", "y.npy"),
    ],
)
@pytest.mark.parametrize("left", [0, 3, -1])
def test_cut_files_of_an_unfinished_folder_are_refused_and_made_again(
    after: str, pattern: str, left: int, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metis, "partition", in_process)
    made, real = graph.with_name("made"), Making.record

    def record(self: Making, what: str, value: Any) -> None:
        real(self, what, value)
        if what == after:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Making, "record", record)
        with pytest.raises(KilledError):
            partition_folder(graph, made, 4, method="stream")
    path = next(graph.with_name(f"{TEMPORARY}convert-made").glob(pattern))
    path.write_bytes(path.read_bytes()[:left])
    with refused(str(path), "again"):
        partition_folder(graph, made, 4, method="stream")
    partition_folder(graph, made, 4, method="stream")
    partition_folder(graph, graph.with_name("unbroken"), 4, method="stream")
    for file in graph.with_name("unbroken").iterdir():
        assert (made / file.name).read_bytes() == file.read_bytes(), file.name
