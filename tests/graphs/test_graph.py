import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch_geometric.data import Data, HeteroData

from gistgnn.errors import InputError
from gistgnn.graphs import Graph

from .samples import arguments, graphs

X = arguments()["x"]


def _with(tensor: torch.Tensor, index: Any, value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed[index] = value
    return changed


WRONG = {
    "x one dimension": ({"x": torch.ones(6)}, r"x has shape \[6\]; expected \[nodes, features\]"),
    "x no nodes": ({"x": torch.ones(0, 2)}, r"x has shape \[0, 2\]"),
    "x no features": ({"x": torch.ones(6, 0)}, r"x has shape \[6, 0\]"),
    "x text": ({"x": np.array([["a", "b"]] * 6)}, "x has dtype <U1; expected a dense array of real numbers"),
    "x objects": ({"x": np.array([[None]] * 6)}, "x has dtype object"),
    "x complex array": ({"x": np.ones((6, 2), dtype=complex)}, "x has dtype complex128"),
    "x complex tensor": ({"x": torch.ones(6, 2, dtype=torch.complex64)}, "x has dtype torch.complex64"),
    "x ragged": ({"x": [[1.0], [1.0, 2.0]]}, "x cannot be converted to an array"),
    "x sparse": ({"x": torch.eye(6).to_sparse()}, r"x is a sparse tensor .* call .to_dense\(\)"),
    "x nan": ({"x": _with(X, (3, 1), math.nan)}, r"x\[3, 1\] is nan; .* node 3"),
    "x inf": ({"x": _with(X, (2, 0), math.inf)}, r"x\[2, 0\] is inf"),
    "x overflows float32": ({"x": np.full((6, 1), 1e300)}, r"x\[0, 0\] is inf"),
    "fewer labels than nodes": ({"y": [0, 1, 2]}, "y has 3 rows and x has 6"),
    "more labels than nodes": ({"y": [0, 1] * 6}, "y has 12 rows and x has 6"),
    "y scalar": ({"y": torch.tensor(1)}, r"y has shape \[\]"),
    "y three dimensions": ({"y": torch.zeros(6, 2, 2)}, r"y has shape \[6, 2, 2\]"),
    "y below -1": ({"y": [0, 1, -7, 0, 1, 2]}, r"y\[2\] is -7; expected labels from 0 up, or -1"),
    "y beyond num_classes": ({"num_classes": 2}, r"y\[2\] is 2; expected labels below num_classes, which is 2"),
    "y absurd": ({"y": [0, 1, 2, 0, 1, 10**9]}, r"y\[5\] is 1000000000, which makes more classes than the 6 nodes"),
    "y fractions": ({"y": [0.0, 1.0, 0.5, 0.0, 1.0, 1.0]}, r"y\[2\] is 0.5; expected an integer label"),
    "y nan": ({"y": [0.0, math.nan, 1.0, 0.0, 1.0, 1.0]}, r"y\[1\] is nan; .* -1 for an unlabelled node"),
    "y one class": ({"y": [3] * 6}, "y holds only the label 3; expected at least 2 classes"),
    "y unlabelled": ({"y": [-1] * 6}, r"y holds no label but -1 \(unlabelled\); expected at least 2 classes"),
    "num_classes 1": ({"y": [0] * 6, "num_classes": 1}, "num_classes is 1, expected an integer >= 2"),
    "multi-label values": ({"y": _with(torch.zeros(6, 3), (4, 2), 2)}, r"y\[4, 2\] is 2.0; expected 0 or 1"),
    "multi-label nan": ({"y": _with(torch.zeros(6, 3), (1, 0), math.nan)}, r"y\[1, 0\] is nan; expected 0 or 1"),
    "multi-label columns": ({"y": torch.zeros(6, 3), "num_classes": 4}, "y has 3 columns and num_classes is 4"),
    "edges transposed": ({"edge_index": torch.zeros(5, 2, dtype=torch.long)}, r"\[5, 2\]; .* transpose it"),
    "edges three rows": (
        {"edge_index": torch.zeros(3, 5, dtype=torch.long)},
        r"shape \[3, 5\]; expected \[2, edges\]$",
    ),
    "edges one dimension": ({"edge_index": [0, 1]}, r"shape \[2\]; expected \[2, edges\]$"),
    "edges float": ({"edge_index": torch.ones(2, 3)}, "edge_index has dtype torch.float32; expected integers"),
    "edges bool": ({"edge_index": torch.ones(2, 3, dtype=torch.bool)}, "edge_index has dtype torch.bool"),
    "edges none": ({"edge_index": [[], []]}, "edge_index has no edges"),
    "edges beyond": ({"edge_index": [[0, 1], [1, 6]]}, r"edge_index\[1, 1\] is 6; expected .* 0 to 5 \(x has 6 rows\)"),
    "edges negative": ({"edge_index": [[0, -1], [1, 2]]}, r"edge_index\[0, 1\] is -1"),
    "train empty list": ({"train": []}, "train is empty; expected at least one node"),
    "val empty mask": ({"val": torch.zeros(6, dtype=torch.bool)}, "val is empty"),
    "test unlabelled": ({"test": [3, 5]}, r"test holds 1 unlabelled nodes \(y = -1\), the first is node 5"),
    "split beyond": ({"val": [2, 6]}, r"val\[1\] is 6; expected node numbers from 0 to 5"),
    "split negative": ({"val": [-2]}, r"val\[0\] is -2"),
    "split repeats": ({"train": [1, 0, 1]}, "train holds node 1 more than once"),
    "split is an integer mask": ({"train": [1, 1, 0, 0, 0, 0]}, r"train holds node 0 more than once; .* make it bool"),
    "split float": ({"train": [0.0, 1.0]}, "train has dtype torch.float64; expected a bool mask or integer"),
    "split in columns": (
        {"train": torch.ones(6, 10, dtype=torch.bool)},
        r"\[6, 10\]; .* one column, such as train\[:, 0\]",
    ),
    "mask short": ({"test": torch.ones(4, dtype=torch.bool)}, "test is a mask of length 4; expected 6"),
    "train and val overlap": ({"val": [1, 2]}, "train and val share 1 nodes, the first is node 1"),
    "val and test overlap": ({"val": [2, 3, 4]}, "val and test share 2 nodes, the first is node 3"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_data_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Graph.build(**arguments(**changes))
    assert "\n" not in str(caught.value)


def test_build_sorts_edges_by_target_and_drops_duplicates_but_not_self_loops() -> None:
    graph = Graph.build(**arguments(edge_index=[[5, 1, 3, 1, 2, 5], [0, 4, 0, 4, 2, 0]]))
    assert graph.edge_index.tolist() == [[3, 5, 2, 1], [0, 0, 2, 4]]
    assert graph.edge_index.dtype == torch.int64


def test_sizes_and_repr() -> None:
    graph = Graph.build(**arguments(), name="ring")
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (6, 6, 2, 3)
    assert not graph.multi_label
    assert repr(graph) == "Graph('ring', nodes=6, edges=6, features=2, classes=3)"


def test_build_takes_masks_or_node_numbers() -> None:
    mask = torch.tensor([True, True, False, False, False, False])
    assert torch.equal(Graph.build(**arguments(train=mask)).train, Graph.build(**arguments(train=[1, 0])).train)
    assert torch.equal(Graph.build(**arguments(train=mask.numpy())).train, mask)


@pytest.mark.parametrize(
    "y",
    [
        [0, 1, 2, 0, 1, -1],
        np.array([[0.0], [1.0], [2.0], [0.0], [1.0], [-1.0]]),
        torch.tensor([0, 1, 2, 0, 1, -1], dtype=torch.int8),
        np.array([0, 1, 2, 0, 1, -1], dtype=">i4"),
    ],
)
def test_build_takes_labels_in_any_integer_form(y: Any) -> None:
    graph = Graph.build(**arguments(y=y))
    assert graph.y.tolist() == [0, 1, 2, 0, 1, -1]
    assert graph.y.dtype == torch.int64


def test_several_labels_per_node() -> None:
    graph = Graph.build(**arguments(y=[[0, 1], [1, 1], [0, 0], [1, 0], [0, 1], [0, 0]]))
    assert graph.multi_label
    assert graph.num_classes == 2
    assert graph.y.dtype == torch.float32
    assert graph.y[1].tolist() == [1.0, 1.0]


def test_num_classes_may_exceed_the_labels_present() -> None:
    assert Graph.build(**arguments(num_classes=40)).num_classes == 40


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float16, np.longdouble, bool])
def test_features_of_any_real_dtype_become_float32(dtype: Any) -> None:
    graph = Graph.build(**arguments(x=np.ones((6, 3), dtype=dtype)[:, ::-1]))
    assert graph.x.dtype == torch.float32
    assert torch.equal(graph.x, torch.ones(6, 3))


def test_read_only_and_gradient_carrying_inputs() -> None:
    x = np.ones((6, 2), dtype=np.float32)
    x.flags.writeable = False
    assert Graph.build(**arguments(x=x)).num_features == 2
    assert not Graph.build(**arguments(x=torch.ones(6, 2, requires_grad=True))).x.requires_grad


def test_to_moves_every_tensor() -> None:
    graph = Graph.build(**arguments()).to("meta")
    assert {t.device.type for t in (graph.x, graph.edge_index, graph.y, graph.train, graph.val, graph.test)} == {"meta"}


def _data(**changes: Any) -> Data:
    values = arguments()
    masks = {f"{s}_mask": getattr(Graph.build(**arguments()), s) for s in ("train", "val", "test")}
    return Data(**{"x": values["x"], "edge_index": values["edge_index"], "y": values["y"], **masks, **changes})


def test_from_pyg() -> None:
    graph = Graph.from_pyg(_data(), name="ring")
    assert graph.name == "ring"
    assert graph.train.nonzero().flatten().tolist() == [0, 1]


@pytest.mark.parametrize("key", ["x", "edge_index", "y", "train_mask", "val_mask", "test_mask"])
def test_from_pyg_names_what_is_missing(key: str) -> None:
    data = _data()
    del data[key]
    with pytest.raises(InputError, match=f"the Data has no {key}; expected all of x, edge_index"):
        Graph.from_pyg(data)


def test_from_pyg_refuses_other_types() -> None:
    with pytest.raises(InputError, match=r"HeteroData; expected a Data: .*\.to_homogeneous\(\)"):
        Graph.from_pyg(HeteroData())
    with pytest.raises(InputError, match=r"the data is a dict; expected a torch_geometric.data.Data"):
        Graph.from_pyg({})


@given(graphs())
def test_edges_are_sorted_and_unique(graph: Graph) -> None:
    pairs = list(zip(graph.edge_index[1].tolist(), graph.edge_index[0].tolist(), strict=True))
    assert pairs == sorted(set(pairs))
