"""Edge data of a `Graph`: checked, sorted with the edges, kept in files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from gistgnn.graphs import Graph, load_file, load_nodes, save_file
from tests.helpers.edges import edge_graph
from tests.helpers.refusals import refused

from .samples import arguments

EDGES = 6  # of `arguments`


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(EDGES)), st.booleans())
def test_data_is_sorted_with_its_edges(order: list[int], repeated: bool) -> None:
    edges = arguments()["edge_index"][:, order]
    if repeated:
        edges = torch.cat([edges, edges[:, :2]], dim=1)
    count = edges.shape[1]
    graph = Graph.build(
        **arguments(edge_index=edges), edge_weight=torch.arange(count), edge_attr=edges.t(), edge_type=np.arange(count)
    )
    assert graph.num_edges == count  # repeated edges may differ in their data
    key = graph.edge_index[1] * 6 + graph.edge_index[0]
    assert bool((key.diff() >= 0).all())
    assert torch.equal(edges[:, graph.edge_type], graph.edge_index)
    assert torch.equal(graph.edge_attr, graph.edge_index.t())
    assert graph.edge_weight.tolist() == graph.edge_type.tolist()
    assert (graph.edge_weight.dtype, graph.edge_attr.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"edge_weight": torch.ones(5)}, ["edge_weight has shape [5]", "expected [6]"]),
        ({"edge_weight": torch.ones(6, 2)}, ["edge_weight has shape [6, 2]", "expected [6]"]),
        ({"edge_weight": [1, 1, np.nan, 1, 1, 1]}, ["edge_weight[2] is nan", "finite"]),
        ({"edge_attr": torch.ones(2, 6)}, ["edge_attr has shape [2, 6]", "expected [6, features]"]),
        ({"edge_attr": [["a"]] * 6}, ["edge_attr has dtype"]),
        ({"edge_type": torch.ones(6)}, ["edge_type has dtype torch.float32", "integers from 0"]),
        ({"edge_type": [0, 1, -2, 0, 0, 0]}, ["edge_type[2] is -2", "integers from 0"]),
    ],
)
def test_wrong_data(changes: dict[str, Any], parts: list[str]) -> None:
    with refused(*parts):
        Graph.build(**arguments(), **changes)


def test_pyg_s_data_and_its_heterogeneous_kind() -> None:
    graph = edge_graph()
    masks = {f"{name}_mask": getattr(graph, name) for name in ("train", "val", "test")}
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks, **graph.edge_data)
    data.edge_weight = data.edge_weight.unsqueeze(1)
    read = Graph.from_pyg(data)
    assert read.edge_data.keys() == {"edge_weight", "edge_attr", "edge_type"}
    assert all(torch.equal(value, graph.edge_data[name]) for name, value in read.edge_data.items())
    assert "edge_type" in repr(read)
    with refused("HeteroData", ".to_homogeneous()", "edge_type"):
        Graph.from_pyg(HeteroData())


def test_files_keep_it(tmp_path: Path) -> None:
    graph = edge_graph()
    save_file(graph, tmp_path / "graph.npz")
    for found in (load_file(tmp_path / "graph.npz").edge_data, load_nodes(tmp_path / "graph.npz")[2]):
        assert found.keys() == graph.edge_data.keys()
        assert all(torch.equal(value, graph.edge_data[name]) for name, value in found.items())


def test_it_is_part_of_the_checksum_and_moves_with_the_graph() -> None:
    graph, other = edge_graph(), edge_graph()
    assert graph.checksum() == other.checksum()
    assert other.edge_weight is not None
    other.edge_weight[0] += 1
    assert graph.checksum() != other.checksum()
    assert graph.to("meta").edge_attr.device.type == "meta"  # type: ignore[union-attr]
