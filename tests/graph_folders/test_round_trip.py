import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import load
from gistgnn.graphs import Graph
from gistgnn.graphs.conversion import buckets, convert, sort
from gistgnn.graphs.on_disk import verify
from gistgnn.storage.whole_files import TEMPORARY
from tests.graphs.raw_layouts import ogb
from tests.graphs.samples import graphs
from tests.helpers.logs import logged
from tests.helpers.refusals import refused

from .folders import assert_same, csv_tables, npz, parquet_tables, small_steps, some_graph


def folder(place: Path, source: Any, **options: Any) -> Graph:
    convert(source, place / "made", **options)
    verify(place / "made")
    assert not list(place.glob(f"{TEMPORARY}*"))
    return load(place / "made")


@settings(deadline=None, max_examples=60)
@given(graphs(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 6))
def test_any_graph_comes_back_through_any_steps(graph: Graph, edges: int, keys: int, cut: int) -> None:
    with tempfile.TemporaryDirectory() as name, small_steps(edges, keys, 16 * cut, cut):
        assert_same(folder(Path(name), graph), graph)


@settings(deadline=None, max_examples=60)
@given(graphs(), st.integers(1, 9), st.booleans())
def test_a_npz_is_read_in_blocks(graph: Graph, steps: int, in_columns: bool) -> None:
    with tempfile.TemporaryDirectory() as name, small_steps(steps, steps, 20 * steps):
        path = Path(name) / "graph.npz"
        arrays = {key: tensor.numpy() for key, tensor in graph.tensors.items()} | {"num_classes": graph.num_classes}
        if in_columns:  # as np.savez writes a transposed array
            arrays |= {key: np.asfortranarray(arrays[key]) for key in ("edge_index", "x")}
        np.savez_compressed(path, **arrays)
        assert_same(folder(Path(name), path), load(path))


@settings(deadline=None, max_examples=40)
@given(graphs(), st.integers(1, 9), st.sampled_from([".csv", ".csv.gz"]))
def test_tables_of_text_come_back(graph: Graph, steps: int, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as name, small_steps(steps, steps, 20 * steps):
        edges, nodes = csv_tables(graph, Path(name), suffix=suffix)
        with_all_classes = not graph.multi_label and int(graph.y.max()) + 1 == graph.num_classes and graph.y.max() > 0
        with_all_classes &= graph.num_classes <= graph.num_nodes  # a table does not say how many there are
        if graph.multi_label or (with_all_classes and len(graph.y[graph.y >= 0].unique()) > 1):
            assert_same(folder(Path(name), edges, nodes=nodes), graph)


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("several", [True, False])
def test_tables_in_parquet_come_back(lists: bool, several: bool, tmp_path: Path) -> None:
    graph = some_graph(**({"y": np.random.default_rng(0).integers(0, 2, (40, 4))} if several else {}))
    edges, nodes = parquet_tables(graph, tmp_path, lists)
    with small_steps():
        assert_same(folder(tmp_path, edges, nodes=nodes), graph)


def test_a_table_may_be_a_folder_of_files(tmp_path: Path) -> None:
    graph = some_graph()
    edges, nodes = csv_tables(graph, tmp_path)
    header, *rows = edges.read_text().splitlines()
    (tmp_path / "parts").mkdir()
    for part in range(3):
        (tmp_path / "parts" / f"{part}.csv").write_text("\n".join([header, *rows[part::3], ""]))
    assert_same(folder(tmp_path, tmp_path / "parts", nodes=nodes), graph)


def test_blank_lines_quotes_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    graph = some_graph()
    edges, nodes = csv_tables(graph, tmp_path)
    edges.write_text("\ufeff" + edges.read_text().replace("\n", "\r\n\r\n"), encoding="utf-8")
    nodes.write_text(nodes.read_text().replace("train", '"train"'))
    with small_steps():
        assert_same(folder(tmp_path, edges, nodes=nodes), graph)


@pytest.mark.parametrize("data", ["edge_weight", "edge_attr", "edge_type"])
def test_edge_data_keeps_its_edges(data: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = {
        "edge_weight": rng.random(300),
        "edge_attr": rng.normal(size=(300, 2)),
        "edge_type": rng.integers(0, 4, 300),
    }
    graph = some_graph(**{data: values[data]})
    assert_same(folder(tmp_path, graph), graph)
    assert_same(folder(tmp_path / "npz", npz(graph, tmp_path / "graph.npz")), graph)
    with refused("has edge data", "leave --undirected out"):
        convert(graph, tmp_path / "both", undirected=True)


def test_a_regression_comes_back(tmp_path: Path) -> None:
    graph = some_graph(y=np.random.default_rng(2).normal(size=(40, 2)), regression=True)
    assert_same(folder(tmp_path, graph), graph)


def test_a_pt_and_a_named_data_set_come_back(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    graph = some_graph()
    masks = {f"{name}_mask": getattr(graph, name) for name in ("train", "val", "test")}
    torch.save(Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks), tmp_path / "graph.pt")
    assert_same(folder(tmp_path, tmp_path / "graph.pt"), graph)
    assert_same(folder(tmp_path / "named", "digits"), load("digits"))
    assert_same(folder(tmp_path / "again", tmp_path / "made"), graph)


def test_undirected_adds_the_reverse_of_every_edge(tmp_path: Path) -> None:
    graph = some_graph()
    both = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
    with small_steps():
        made = folder(tmp_path, npz(graph, tmp_path / "graph.npz"), undirected=True)
    assert_same(made, some_graph(edge_index=both))


def test_raw_files_of_ogb_in_text(tmp_path: Path) -> None:
    raw = tmp_path / "ogbn_arxiv"
    ogb(raw, "time", 20)
    named, made = load("ogbn-arxiv", tmp_path), folder(tmp_path, raw)
    assert made.name == "ogbn-arxiv"
    assert made.num_classes == 4  # of these files; those of the data set are in OGB's table
    for key in ("x", "edge_index", "y", "train", "val", "test"):
        assert torch.equal(getattr(made, key), getattr(named, key)), key
    one_way = folder(tmp_path / "one way", raw, undirected=False)
    assert one_way.num_edges == 20


def test_raw_files_of_ogb_as_of_papers100m(tmp_path: Path) -> None:
    graph, raw = (
        some_graph(y=np.where(np.arange(40) < 30, np.arange(40) % 3, -1), train=[0, 1], val=[2], test=[3]),
        tmp_path,
    )
    ogb(raw, "time", 20)  # for the form of the lists of nodes
    for name in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list"):
        (raw / "raw" / f"{name}.csv.gz").unlink()
    for file, node in (("train", [0, 1]), ("valid", [2]), ("test", [3])):
        np.savetxt(raw / "split" / "time" / f"{file}.csv.gz", node, "%d")
    arrays = {"num_nodes_list": [40], "num_edges_list": [300], "node_year": np.full((40, 1), 2020)}
    np.savez(raw / "raw" / "data.npz", edge_index=graph.edge_index, node_feat=graph.x, **arrays)
    labels = np.where(graph.y < 0, np.nan, graph.y.numpy()).astype(np.float32)
    np.savez(raw / "raw" / "node-label.npz", node_label=labels[:, None])
    with small_steps():
        assert_same(folder(tmp_path, raw, undirected=False), graph)


def test_sources_are_int64_where_nodes_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "NARROW", 10)
    graph = some_graph()
    assert_same(folder(tmp_path, npz(graph, tmp_path / "graph.npz")), graph)
    assert np.load(tmp_path / "made" / "col.npy").dtype == np.int64


def test_one_edge_again_and_again_takes_no_memory(tmp_path: Path) -> None:
    graph = some_graph(edge_index=np.tile([[3], [4]], 500))
    path = tmp_path / "graph.npz"
    np.savez(
        path, **{**{key: value.numpy() for key, value in graph.tensors.items()}, "edge_index": np.tile([[3], [4]], 500)}
    )
    with small_steps(edges=1, keys=2):
        assert folder(tmp_path, path).edge_index.tolist() == [[3], [4]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=200), st.integers(1, 30))
def test_keys_that_do_not_fit_in_memory_are_sorted(values: list[int], most: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "edges-0.keys"
        np.array(values, np.uint64).tofile(path)
        pieces = list(sort.sorted_pieces(path, 21, most))
        assert np.concatenate(pieces).tolist() == sorted(set(values))
        assert max(map(len, pieces)) <= most
        assert list(Path(name).iterdir()) == [path]


@pytest.mark.parametrize(("nodes", "wanted"), [(1, 1), (1, 9), (7, 3), (64, 64), (65, 64), (100, 1)])
def test_buckets_hold_every_node_once(nodes: int, wanted: int) -> None:
    cut = buckets.Buckets.of(nodes, wanted)
    assert [node for bucket in range(len(cut)) for node in cut.targets(bucket)] == list(range(nodes))
    assert len(cut) <= wanted


def test_half_precision_is_rounded_and_said(tmp_path: Path) -> None:
    graph = some_graph()
    with logged() as notes:
        made = folder(tmp_path, graph, dtype="float16")
    assert np.load(tmp_path / "made" / "x.npy").dtype == np.float16
    assert torch.equal(made.x, graph.x.half().float())
    assert any("x of graph is float16: as float32 it takes 480 bytes of memory" in note for note in notes)


def test_bytes_with_scales_are_near(tmp_path: Path) -> None:
    graph = some_graph(x=np.random.default_rng(5).normal(size=(40, 4)) * [1, 1e-3, 1e6, 0])
    with small_steps():
        made = folder(tmp_path, npz(graph, tmp_path / "graph.npz"), dtype="int8")
    stored, scale = np.load(tmp_path / "made" / "x.npy"), np.load(tmp_path / "made" / "x_scale.npy")
    assert stored.dtype == np.int8
    assert np.allclose(scale[:3] * 127, graph.x.abs().amax(0)[:3])
    assert torch.equal(made.x, torch.from_numpy(stored * scale))
    assert ((made.x - graph.x).abs() <= torch.from_numpy(scale) / 2 * 1.0001).all()


def test_x_is_mapped_and_edge_index_is_built_on_request(tmp_path: Path) -> None:
    graph = some_graph()
    made = folder(tmp_path, graph)
    assert "edge_index" not in vars(made)
    assert made.x.untyped_storage().data_ptr() != graph.x.untyped_storage().data_ptr()
    before = (tmp_path / "made" / "x.npy").read_bytes()
    made.x[0, 0] = 7  # in this process alone
    assert (tmp_path / "made" / "x.npy").read_bytes() == before
    assert torch.equal(made.edge_index, graph.edge_index)
    assert made.edge_index is made.edge_index
    assert made.to("cpu").num_edges == graph.num_edges
    assert torch.equal(made.with_features(graph.x * 2).x, graph.x * 2)


def test_the_same_command_twice_changes_nothing(tmp_path: Path) -> None:
    path = npz(some_graph(), tmp_path / "graph.npz")
    assert convert(path, tmp_path / "made").seconds
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "made").iterdir()}
    assert not convert(path, tmp_path / "made").seconds
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "made").iterdir()} == before
    with refused("is there already, and is not this graph", "choose another folder"):
        convert(path, tmp_path / "made", dtype="float16")
    (tmp_path / "empty").mkdir()
    convert(path, tmp_path / "empty")
