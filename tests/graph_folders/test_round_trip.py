"""A graph of any source comes back from its folder as it was."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import load
from gistgnn.graphs import Graph, save_file
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.folder import verify
from gistgnn.storage.whole_files import TEMPORARY
from tests.graphs.raw_layouts import ogb
from tests.graphs.samples import arrays_of, as_data, assert_equal, graphs, tells_classes
from tests.helpers.refusals import refused

from .folders import csv_tables, npz, parquet_tables, small_steps, some_graph


def converted(root: Path, source: Any, **options: Any) -> Graph:
    convert(source, root / "made", **options)
    verify(root / "made")
    assert not list(root.glob(f"{TEMPORARY}*"))
    return load(root / "made")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "form", [".npz", ".pt", ".csv", ".csv.gz", ".parquet", "lists in .parquet"]
)
@settings(deadline=None, max_examples=8)
@given(graph=graphs(), steps=st.integers(1, 9))
def test_any_graph_comes_back_from_any_file(form: str, graph: Graph, steps: int) -> None:
    with tempfile.TemporaryDirectory() as name, small_steps(steps, steps):
        root = Path(name)
        nodes = None
        assert_equal(converted(root / "memory", graph), graph)
        if form in (".npz", ".pt"):
            source = root / f"mine{form}"
            if form == ".npz":
                save_file(graph, source)
            else:
                torch.save(as_data(graph), source)
            assert [path.name for path in root.iterdir() if path.is_file()] == [source.name]
        elif form.endswith(".parquet"):
            source, nodes = parquet_tables(graph, root, lists="lists" in form)
        else:
            source, nodes = csv_tables(graph, root, suffix=form)
        if form == ".npz" or tells_classes(graph):
            made = converted(root, source, nodes=nodes)
            assert_equal(made, graph)
            assert made.name == ("made" if nodes else "mine")
            if not nodes:
                assert load(str(source)).digests() == graph.digests()


def test_text_may_be_in_parts_and_have_quotes_blank_lines_and_a_byte_order_mark(
    tmp_path: Path,
) -> None:
    graph = some_graph()
    edges, nodes = csv_tables(graph, tmp_path)
    header, *rows = edges.read_text().splitlines()
    (tmp_path / "parts").mkdir()
    for part in range(3):
        (tmp_path / "parts" / f"{part}.csv").write_text(
            "\n".join([header, *rows[part::3], *rows[:50], ""])
        )
    assert_equal(converted(tmp_path / "of folder", tmp_path / "parts", nodes=nodes), graph)
    edges.write_text("\ufeff" + edges.read_text().replace("\n", "\r\n\r\n"), encoding="utf-8")
    nodes.write_text(nodes.read_text().replace("train", '"train"'))
    with small_steps():
        assert_equal(converted(tmp_path, edges, nodes=nodes), graph)
        both_ways = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
        made = converted(tmp_path / "both", edges, nodes=nodes, undirected=True)
        assert_equal(made, some_graph(edge_index=both_ways))


def test_edge_data_keeps_its_edges(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = {"edge_weight": rng.random(300), "edge_attr": rng.normal(size=(300, 2))}
    for name, value in {**values, "edge_type": rng.integers(0, 4, 300)}.items():
        graph = some_graph(**{name: value})
        assert_equal(converted(tmp_path / name, graph), graph)
    assert_equal(converted(tmp_path / "npz", npz(graph, tmp_path / "graph.npz")), graph)
    with refused("has edge data", "leave --undirected out"):
        convert(graph, tmp_path / "both", undirected=True)


def test_every_source_in_memory_comes_back(tmp_path: Path) -> None:
    graph = some_graph()
    arrays: dict[str, Any] = arrays_of(graph)
    # Arrays that were transposed are stored so.
    arrays |= {key: np.asfortranarray(arrays[key]) for key in ("edge_index", "x")}
    np.savez_compressed(tmp_path / "graph.npz", **arrays)
    made = converted(tmp_path, tmp_path / "graph.npz")
    assert made.folder == tmp_path / "made"
    assert "edge_index" not in vars(made)  # it is built when something asks for it
    assert_equal(made, graph)
    assert made.edge_index is made.edge_index
    assert made.to("cpu").num_edges == graph.num_edges
    assert_equal(converted(tmp_path / "again", tmp_path / "made"), graph)
    assert_equal(converted(tmp_path / "named", "digits"), load("digits"))
    targets = some_graph(y=np.random.default_rng(2).normal(size=(40, 2)), regression=True)
    assert_equal(converted(tmp_path / "regression", targets), targets)


def test_raw_files_of_ogb_in_text_are_read_as_by_name(tmp_path: Path) -> None:
    raw = tmp_path / "ogbn_arxiv"
    ogb(raw, "time", 20)
    by_name = load("ogbn-arxiv", tmp_path)
    made = converted(tmp_path, raw)
    assert made.name == "ogbn-arxiv"
    assert made.num_classes == 4  # of these files; those of the data set are in OGB's table
    for key in ("x", "edge_index", "y", "train", "val", "test"):
        assert torch.equal(getattr(made, key), getattr(by_name, key)), key
    one_way = converted(tmp_path / "one way", raw, undirected=False)
    assert one_way.num_edges == 20


def test_raw_files_of_ogb_in_the_form_of_papers100m_are_read(tmp_path: Path) -> None:
    labels = np.where(np.arange(40) < 30, np.arange(40) % 3, -1)
    raw = tmp_path
    graph = some_graph(y=labels, train=[0, 1], val=[2], test=[3])
    ogb(raw, "time", 20)  # for the form of the lists of nodes
    for name in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list"):
        (raw / "raw" / f"{name}.csv.gz").unlink()
    for file, node in (("train", [0, 1]), ("valid", [2]), ("test", [3])):
        np.savetxt(raw / "split" / "time" / f"{file}.csv.gz", node, "%d")
    arrays = {"num_nodes_list": [40], "num_edges_list": [300], "node_year": np.full((40, 1), 2020)}
    np.savez(raw / "raw" / "data.npz", edge_index=graph.edge_index, node_feat=graph.x, **arrays)
    stored = np.where(labels < 0, np.nan, labels).astype(np.float32)
    np.savez(raw / "raw" / "node-label.npz", node_label=stored[:, None])
    with small_steps():
        assert_equal(converted(tmp_path, raw, undirected=False), graph)


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    path = npz(some_graph(), tmp_path / "graph.npz")
    convert(path, tmp_path / "made")
    with refused("is there already: choose another folder, or remove it"):
        convert(path, tmp_path / "made")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("behind")
    for name in ("empty", "link"):
        convert(path, tmp_path / name)
        assert_equal(load(tmp_path / name), some_graph())
    assert (tmp_path / "link").is_symlink()
