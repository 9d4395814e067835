"""Graph folders in the order of their clusters."""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import load
from gistgnn.graphs import Graph, metis
from gistgnn.graphs.clustering import Clusters
from gistgnn.graphs.conversion import convert, partition_folder, partitioning
from gistgnn.graphs.folder import Manifest, verify
from gistgnn.storage.whole_files import TEMPORARY
from tests.graphs.samples import assert_equal, graphs
from tests.helpers.clustered_folders import renumbered
from tests.helpers.logs import logged
from tests.helpers.refusals import refused

from .folders import some_graph


def assert_renumbered(source: Path, made: Path) -> None:
    """The folder is the graph of the other one with new numbers."""
    assert verify(made)
    manifest, before = (Manifest.read(folder) for folder in (made, source))
    assert manifest.arrays.keys() == {*before.arrays, "node", "cluster_ptr"}
    for name, entry in before.arrays.items():
        assert manifest.arrays[name].dtype == entry.dtype
    node, ptr = (
        torch.from_numpy(np.load(made / f"{name}.npy")) for name in ("node", "cluster_ptr")
    )
    assert all((node[begin:end].diff() > 0).all() for begin, end in pairwise(ptr))
    one = load(made)
    other = renumbered(load(source), Clusters(node, ptr))
    assert_equal(replace(one, cluster_ptr=None), other)  # which has no clusters
    assert one.name == other.name


def with_data(graph: Graph, seed: int) -> Graph:
    """A graph with all kinds of edge data, and with repeated edges."""
    rng = np.random.default_rng(seed)
    edges = torch.cat([graph.edge_index, graph.edge_index[:, :5]], 1)
    count = edges.shape[1]
    fields = {
        name: getattr(graph, name) for name in ("x", "y", "train", "val", "test", "num_classes")
    }
    data = {"edge_attr": rng.normal(size=(count, 3)), "edge_type": rng.integers(0, 3, count)}
    return Graph.build(edge_index=edges, **fields, edge_weight=rng.random(count), **data)


@settings(max_examples=20, deadline=None)
@given(graphs(), st.sampled_from(partitioning.FOLDER_METHODS[1:]), st.data())
def test_any_graph_is_the_same_with_new_numbers(
    graph: Graph, method: str, data: st.DataObject
) -> None:
    graph = with_data(graph, 0) if data.draw(st.booleans()) else graph
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partitioning, "_MOST", data.draw(st.integers(64, 1000)))
            patch.setattr(metis, "metis_clusters", metis.partition_here)
            convert(graph, root / "graph")
            count = data.draw(st.integers(1, graph.num_nodes))
            made = partition_folder(root / "graph", root / "made", count, method=method, seed=3)
        assert not list(root.glob(f"{TEMPORARY}*"))
        assert_renumbered(root / "graph", root / "made")
        number = np.arange(len(made.sizes)).repeat(made.sizes)  # of each node's cluster
        source, target = load(root / "made").edge_index.numpy()
        assert made.method == method
        assert made.edges_inside == (number[source] == number[target]).mean()
        assert len(number) == graph.num_nodes


def test_the_method_follows_from_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert("digits", tmp_path / "graph")
    with logged() as notes:
        assert partition_folder(tmp_path / "graph", tmp_path / "one", 20).method == "metis"
    assert any(
        "which fits, as" in note and note.endswith("are left of --memory: metis") for note in notes
    )
    monkeypatch.setattr(
        metis, "metis_bytes", lambda nodes, edges: 10 * 2**30 if nodes > 1000 else 0
    )
    with logged() as notes:
        assert partition_folder(tmp_path / "graph", tmp_path / "two", 20).method == "stream"
    assert any("METIS needs about 10 GiB" in note and "does not fit" in note for note in notes)
    with refused(
        "metis needs about 10 GiB of memory for 1,797 nodes", "give more, or --method stream"
    ):
        partition_folder(tmp_path / "graph", tmp_path / "three", 20, method="metis")
    monkeypatch.setattr(partitioning.streaming, "stream_bytes", lambda nodes, edges: 11 * 2**30)
    with refused("stream needs about 11 GiB of memory", "are left of --memory: give more"):
        partition_folder(tmp_path / "graph", tmp_path / "three", 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "one", "two"]


def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    made = tmp_path / "made"
    other = tmp_path / "other"
    convert(some_graph(), graph)
    partition_folder(graph, made, 4, method="random")
    for source, out, options, message in (
        (made, other, {}, f"{made} is in clusters already"),
        (graph, tmp_path / "made" / ".." / "graph", {}, "graph is there already"),
        (graph, other, {"clusters": 41}, "clusters is 41, expected an integer"),
        (
            graph,
            other,
            {"method": "best"},
            "method is 'best', expected one of auto, metis, stream, random",
        ),
        (graph, other, {"memory": 1000}, "memory is 1,000 bytes; expected at least"),
        (tmp_path / "no", other, {}, f"{tmp_path / 'no'} has no manifest.json"),
    ):
        with refused(message):
            partition_folder(source, out, **{"clusters": 4, **options})
    (graph / "x.npy").write_bytes((graph / "x.npy").read_bytes()[:-1])
    with refused("x.npy"):
        partition_folder(graph, other, 4, method="random")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "made"]
