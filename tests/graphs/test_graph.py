"""What `Graph` makes of a user's tensors, arrays and lists, what it refuses, and what it notes."""

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csr_matrix
from torch.nn.functional import one_hot
from torch_geometric.data import Data, HeteroData

from gistgnn import GIST
from gistgnn.graphs import Graph
from gistgnn.graphs.doubts import note_doubts
from gistgnn.nn import GCN, GNN, GraphSAGE
from tests.helpers.edges import edge_graph
from tests.helpers.logs import logged
from tests.helpers.pretended_gpu import pretended_gpu
from tests.helpers.refusals import refused

from .samples import arguments, as_data, graphs

X = arguments()["x"]
EDGES = 6  # of `arguments`
MULTI = torch.zeros(6, 3)


def with_value(tensor: torch.Tensor, index: Any, value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed[index] = value
    return changed


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"x": torch.ones(6)}, "x has shape [6]; expected [nodes, features]"),
    ({"x": np.array([["a", "b"]] * 6)}, "x has dtype <U1; expected a dense array of real numbers"),
    ({"x": csr_matrix(np.eye(6) * 1j)}, "x has dtype complex128; expected real numbers"),
    (
        {"edge_index": coo_matrix(np.eye(6))},
        "edge_index is a coo_matrix, which is sparse; expected a dense array: give",
    ),
    ({"x": [[1.0], [1.0, 2.0]]}, "x cannot be converted to an array"),
    (
        {"x": with_value(X, (3, 1), math.nan)},
        "x[3, 1] is nan; expected finite float32 values: clean or impute the features",
    ),
    ({"x": np.full((6, 1), 1e300)}, "x[0, 0] is inf"),
    ({"y": [0, 1, 2]}, "y has 3 rows and x has 6"),
    ({"y": torch.tensor(1)}, "y has shape []"),
    ({"y": [0, 1, -7, 0, 1, 2]}, "y[2] is -7; expected labels from 0 up, or -1"),
    ({"num_classes": 2}, "y[2] is 2; expected labels below num_classes, which is 2"),
    (
        {"y": [0, 1, 2, 0, 1, 10**9]},
        "y[5] is 1000000000; expected labels 0, 1, ..., classes - 1, with fewer classes",
    ),
    ({"y": [0.0, 1.0, 0.5, 0.0, 1.0, 1.0]}, "y[2] is 0.5; expected an integer label"),
    (
        {"y": [0.0, math.nan, 1.0, 0.0, 1.0, 1.0]},
        "y[1] is nan; expected an integer label, or -1 for an unlabelled",
    ),
    (
        {"y": [0.5, math.nan, 1, 0, 1, 1], "regression": True},
        "y[1] is not finite, but train holds node 1: take it",
    ),
    ({"y": [3] * 6}, "y holds only the label 3; expected at least 2 classes"),
    ({"y": ["a"] * 6}, "y holds only the class 'a'; expected at least 2 classes"),
    ({"y": [-1] * 6}, "y holds no label but -1 (unlabelled); expected at least 2 classes"),
    ({"y": [0] * 6, "num_classes": 1}, "num_classes is 1, expected an integer >= 2"),
    ({"y": with_value(MULTI, (4, 2), 2)}, "y[4, 2] is 2.0; expected 0 or 1"),
    (
        {"y": with_value(MULTI, (1, 2), math.nan)},
        "y[1] is not finite, but train holds node 1: take it out of train",
    ),
    ({"num_classes": 10**6}, "num_classes is 1000000, expected an integer from 2 to 10,000"),
    ({"y": MULTI, "num_classes": 4}, "y has 3 columns and num_classes is 4"),
    (
        {"edge_index": torch.zeros(5, 2, dtype=torch.long)},
        "[5, 2]; expected [2, edges]: transpose it",
    ),
    ({"edge_index": torch.ones(2, 3)}, "edge_index has dtype torch.float32; expected integers"),
    ({"edge_index": [[], []]}, "edge_index has no edges"),
    (
        {"edge_index": [[0, 1], [1, 6]]},
        "edge_index[1, 1] is 6; expected node numbers from 0 to 5 (x has 6 rows)",
    ),
    ({"edge_index": [[0, -1], [1, 2]]}, "edge_index[0, 1] is -1"),
    ({"train": []}, "train is empty; expected at least one node"),
    (
        {"val": torch.zeros(6, dtype=torch.bool)},
        "val is empty; expected at least one node: the best model is",
    ),
    ({"test": [3, 5]}, "test holds 1 unlabelled nodes (y = -1), the first is node 5"),
    ({"val": [2, 6]}, "val[1] is 6; expected node numbers from 0 to 5"),
    (
        {"train": [1, 1, 0, 0, 0, 0]},
        "train holds node 0 more than once; expected distinct node numbers (if it is",
    ),
    ({"train": [0.0, 1.0]}, "train has dtype torch.float64; expected a bool mask or integer"),
    ({"train": torch.ones(6, 10, dtype=torch.bool)}, "choose one column, such as train[:, 0]"),
    ({"test": torch.ones(4, dtype=torch.bool)}, "test is a mask of length 4; expected 6"),
    ({"val": [1, 2]}, "train and val share 1 nodes, the first is node 1"),
    ({"val": [2, 3, 4]}, "val and test share 2 nodes, the first is node 3"),
    (
        {"edge_weight": torch.ones(5)},
        "edge_weight has shape [5]; expected [6], one number per edge",
    ),
    (
        {"edge_weight": [1, 1, np.nan, 1, 1, 1]},
        "edge_weight[2] is nan; expected finite float32 values",
    ),
    (
        {"edge_attr": torch.ones(2, 6)},
        "edge_attr has shape [2, 6]; expected [6, features], one row per edge",
    ),
    (
        {"edge_type": torch.ones(6)},
        "edge_type has dtype torch.float32; expected integers from 0 up",
    ),
    ({"edge_type": [0, 1, -2, 0, 0, 0]}, "edge_type[2] is -2; expected integers from 0 up"),
]


def test_wrong_data_is_refused_in_one_line() -> None:
    for changes, message in WRONG:
        with refused(message):
            Graph.build(**arguments(**changes))


@given(graphs())
def test_edges_are_sorted_and_unique(graph: Graph) -> None:
    pairs = list(zip(graph.edge_index[1].tolist(), graph.edge_index[0].tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert graph.edge_index.dtype == torch.int64


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(EDGES)), st.booleans())
def test_edge_data_is_sorted_with_its_edges(order: list[int], repeated: bool) -> None:
    edges = arguments()["edge_index"][:, order]
    edges = torch.cat([edges, edges[:, :2]], dim=1) if repeated else edges
    count = edges.shape[1]
    data = {
        "edge_weight": torch.arange(count),
        "edge_attr": edges.t(),
        "edge_type": np.arange(count),
    }
    graph = Graph.build(**arguments(edge_index=edges), **data)
    assert graph.num_edges == count  # repeated edges may differ in their data
    assert bool(((graph.edge_index[1] * 6 + graph.edge_index[0]).diff() >= 0).all())
    assert torch.equal(edges[:, graph.edge_type], graph.edge_index)
    assert torch.equal(graph.edge_attr, graph.edge_index.t())
    assert graph.edge_weight.tolist() == graph.edge_type.tolist()
    assert (graph.edge_weight.dtype, graph.edge_attr.dtype) == (torch.float32, torch.int64)


def test_a_graph_has_its_sizes_moves_whole_and_has_the_digests_of_its_values() -> None:
    graph = Graph.build(
        **arguments(edge_index=[[5, 1, 3, 1, 2, 5], [0, 4, 0, 4, 2, 0]]), name="ring"
    )
    assert graph.edge_index.tolist() == [[3, 5, 2, 1], [0, 0, 2, 4]]  # a self-loop stays
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (6, 4, 2, 3)
    assert repr(graph) == "Graph('ring', nodes=6, edges=4, features=2, classes=3)"
    moved = edge_graph().to("meta")
    assert {tensor.device.type for tensor in (*moved.tensors.values(), moved.edge_index)} == {
        "meta"
    }
    assert Graph.build(**arguments(num_classes=40)).num_classes == 40
    one = edge_graph()
    other = edge_graph()
    assert one.digests() == other.digests()
    other.edge_weight[0] += 1
    assert one.digests() != other.digests()


def test_labels_may_have_any_form_of_integers() -> None:
    labels = [0, 1, 2, 0, 1, -1]
    column = np.array(labels, float)[:, None]
    for y in (
        labels,
        column,
        torch.tensor(labels, dtype=torch.int8),
        np.array(labels, dtype=">i4"),
    ):
        graph = Graph.build(**arguments(y=y))
        assert graph.y.tolist() == labels
        assert graph.y.dtype == torch.int64
    several = Graph.build(**arguments(y=[[0, 1], [1, 1], [0, 0], [1, 0], [0, 1], [0, 0]]))
    assert (several.multi_label, several.num_classes, several.y.dtype) == (True, 2, torch.float32)


def test_nodes_of_no_split_may_lack_some_of_several_labels() -> None:
    y = with_value(torch.eye(3).repeat(2, 1), (5, slice(None)), math.nan)
    graph = Graph.build(**arguments(y=with_value(y, (4, 1), math.nan), test=[3]))
    assert (graph.multi_label, graph.num_classes) == (True, 3)
    assert graph.y.isnan().sum(dim=1).tolist() == [0, 0, 0, 0, 1, 3]


def test_missing_labels_in_no_split_change_no_run() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 4, generator=generator)
    edges = torch.randint(40, (2, 200), generator=generator)
    labels = torch.randint(2, (40, 3), generator=generator).float()
    nodes = torch.arange(40)
    scores = []
    for y in (labels, with_value(with_value(labels, slice(30, 40), math.nan), (29, 1), math.nan)):
        data = Data(
            x=x, edge_index=edges, y=y, train_mask=nodes < 15, val_mask=(nodes >= 15) & (nodes < 25)
        )
        for loss in ("binary-cross-entropy", torch.nn.BCEWithLogitsLoss()):
            gist = GIST(lambda widths: GCN(4, widths, 3), (4,), sub_gcns=2)
            scores.append(gist.fit(data, epochs=4, loss=loss, progress=False).validation)
    assert scores[0] == scores[2]
    assert scores[1] == scores[3]
    assert all("f1_micro" in score for score in scores)


MISSING = [
    None,
    float("nan"),
    np.float64("nan"),
    "nan",
    "None",
    "<NA>",
    "NaN",
    "null",
    "NULL",
    "",
    " ",
    "NA",
    "n/a",
    "-1",
]


@pytest.mark.parametrize("missing", MISSING)
def test_a_missing_label_is_no_class(missing: Any) -> None:
    labels = ["b", "a", "b", "a", "Na", missing]
    forms: list[Any] = [labels, np.array(labels, object)]
    forms += [np.array(labels)] if isinstance(missing, str) else []
    for y in forms:
        with logged(logging.WARNING) as notes:
            graph = Graph.build(**arguments(y=y))
        assert graph.class_names == ("Na", "a", "b")
        assert graph.y.tolist() == [2, 1, 2, 1, 0, -1]
        is_word = isinstance(missing, str) and missing.strip() not in ("", "-1")
        assert any(f"{missing!r} (1 nodes)" in note for note in notes) == is_word


def test_features_of_any_real_type_become_float32() -> None:
    for dtype in (np.uint8, np.uint16, np.int16, np.float16, np.longdouble, bool):
        graph = Graph.build(**arguments(x=np.ones((6, 3), dtype=dtype)[:, ::-1]))
        assert graph.x.dtype == torch.float32
        assert torch.equal(graph.x, torch.ones(6, 3))
    x = np.ones((6, 2), dtype=np.float32)
    x.flags.writeable = False
    assert Graph.build(**arguments(x=x)).num_features == 2
    assert not Graph.build(**arguments(x=torch.ones(6, 2, requires_grad=True))).x.requires_grad


def test_a_data_of_pyg_is_read_with_its_edge_data_and_refused_where_it_lacks_something() -> None:
    graph = edge_graph()
    data = as_data(graph, **graph.edge_data)
    data.edge_weight = data.edge_weight.unsqueeze(1)
    read = Graph.from_pyg(data, name="ring")
    assert read.name == "ring"
    assert torch.equal(read.train, graph.train)
    assert read.edge_data.keys() == {"edge_weight", "edge_attr", "edge_type"}
    assert all(torch.equal(value, graph.edge_data[name]) for name, value in read.edge_data.items())
    assert "edge_type" in repr(read)
    for key in ("x", "edge_index", "y", "train_mask", "val_mask"):
        lacking = as_data(graph)
        del lacking[key]
        with refused(f"no {key}"):
            Graph.from_pyg(lacking)
    with refused("HeteroData; expected a Data: ", "from_hetero"):
        Graph.from_pyg(HeteroData())
    with refused("dict", "torch_geometric.data.Data"):
        Graph.from_pyg({})


AT = torch.arange(30)
CLASSES = torch.arange(30) % 3
ONE_WAY = torch.stack([AT[:-1], AT[1:]])
DOUBTS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"test": []}, "graph has no test nodes: there are no test scores"),
    (
        {"edge_index": torch.cat([ONE_WAY, AT.repeat(2, 1)], dim=1)},
        "0% of the edges of graph have a reverse edge",
    ),
    ({"edge_weight": torch.linspace(1, -2, 58)}, "edge_weight has negative values, such as -2"),
    ({"y": one_hot(CLASSES)}, "y has one 1 in every row"),
    (
        {"y": with_value(one_hot(CLASSES), 4, 0)},
        "y has one 1 in 29 rows, none in 1 and nowhere two",
    ),
    (
        {"y": with_value(one_hot(CLASSES), slice(20), 0)},
        "y has one 1 in 10 rows, none in 20 and nowhere two",
    ),
    (
        {"y": with_value(one_hot(CLASSES).double(), 4, math.nan), "train": [0, 1]},
        "y has one 1 in every row",
    ),
    ({"y": torch.cat([one_hot(CLASSES), torch.ones(30, 1)], dim=1)}, ""),
    ({"y": with_value(one_hot(CLASSES), (4, slice(None)), 1)}, ""),
    (
        {"y": 1000 + AT.float(), "regression": True},
        "y has a mean of 1004 and a deviation of 2.582, which takes long",
    ),
    (
        {"y": torch.stack([AT.float(), 1000 + AT.float()], dim=1), "regression": True},
        "y[:, 1] has a mean of 1004 and a deviation of 2.582, which takes long",
    ),
    (
        {"y": torch.where(CLASSES == 2, 9, CLASSES)},
        "no node has class 2, 3, 4, 5, 6, ...: the model",
    ),
]


def test_what_is_perhaps_not_meant_is_noted() -> None:
    both_ways = torch.cat([ONE_WAY, ONE_WAY.flip(0)], dim=1)
    masks = {"train": AT[:9], "val": AT[9:19], "test": AT[19:]}
    valid = {"x": torch.ones(30, 2), "edge_index": both_ways, "y": CLASSES, **masks}
    for changes, note in DOUBTS:
        with logged(logging.INFO if "test" in changes else logging.WARNING) as notes:
            note_doubts(Graph.build(**{**valid, **changes}))
        assert len(notes) == bool(note)
        assert note in "".join(notes)


@pytest.mark.parametrize(
    ("model", "same", "noted"), [(GCN, 0.5, True), (GraphSAGE, 0.5, False), (GCN, 0.8, False)]
)
def test_edges_that_say_nothing_of_the_classes_are_noted(
    model: type[GNN], same: float, noted: bool
) -> None:
    torch.manual_seed(0)
    y = torch.arange(200) % 2
    edges = torch.randint(200, (2, 4000))
    edges = edges[:, (y[edges[0]] == y[edges[1]]) == (torch.rand(4000) < same)]
    graph = Graph.build(torch.rand(200, 3), edges, y, train=range(150), val=range(150, 200))
    with logged(logging.WARNING) as notes:
        GIST(lambda widths: model(3, widths, 2), (4,)).fit(graph, epochs=1, progress=False)
    assert any("adjusted homophily" in note and "try GraphSAGE" in note for note in notes) == noted


COUNTED = np.arange(20.0)
COLUMNS: list[tuple[Any, str]] = [
    (COUNTED, "x[:, 1] numbers the rows"),
    (COUNTED + 7, "x[:, 1] numbers the rows"),
    (np.random.default_rng(0).permutation(20), "x[:, 1] numbers the rows"),
    (COUNTED * 2, ""),
    (COUNTED // 2, ""),
    (COUNTED.clip(1), ""),
    (
        np.arange(20) * 5 + 2**25,
        "x[:, 1] has whole numbers such as 33554437, which float32 makes 33554436",
    ),
    (np.arange(20) * 2**9 + 2**53 + 1, "x[:, 1] has whole numbers such as 900719925474"),
    (np.arange(20) * 7.5 + 1.7e9, "x[:, 1] varies by 43.2 around 1.70000007e+09"),
    (np.arange(20) * 1e-9 + 1, "x[:, 1] varies by 5.77e-09"),
    (np.arange(20) ** 2 * 0.1 + 2**24, ""),
    (np.arange(20) * 4 + 2**25, ""),
]


@pytest.mark.parametrize(("column", "note"), COLUMNS)
def test_columns_that_may_not_be_features_are_noted(column: Any, note: str) -> None:
    x = np.stack([np.sqrt(np.arange(20)), column], axis=1)
    ring = [range(20), [*range(1, 20), 0]]
    valid = {"edge_index": ring, "y": [0, 1] * 10, "train": range(9), "val": [9]}
    forms: list[Any] = [x, torch.from_numpy(x), x.tolist()]
    if column.dtype == np.int64:
        forms.append(x.astype(np.int64))
        if column.max() < 2**31:
            forms.append(torch.from_numpy(x.astype(np.int32)))
    for form in forms:
        with logged(logging.WARNING) as notes:
            Graph.build(form, **valid)
        assert [note in text for text in notes] == [True] * bool(note), notes


def test_an_infinite_value_behind_rows_that_are_numbered_is_refused() -> None:
    # So many columns that not all rows are looked at first.
    nodes = 2000
    x = torch.zeros(nodes, 5000)
    x[:, 0] = torch.from_numpy(np.random.default_rng(0).permutation(nodes))
    x[1900, 0] = math.inf
    with refused("x[1900, 0] is inf; expected finite float32 values"):
        Graph.build(x, [[0], [1]], [0, 1] * 1000, train=[0], val=[1])


def test_all_tensors_are_where_the_features_are() -> None:
    values = {key: torch.as_tensor(value) for key, value in arguments().items()}
    values["edge_weight"] = torch.ones(EDGES)
    expected = Graph.build(**values)
    with pretended_gpu():
        for elsewhere in ("x", "edge_index", "y", "edge_weight", "train"):
            mixed = {key: value.to("cuda:0") for key, value in values.items()}
            mixed[elsewhere] = values[elsewhere]
            graph = Graph.build(**mixed)
            tensors = [*graph.tensors.values(), graph.edges.rowptr, graph.edges.col]
            assert {tensor.device for tensor in tensors} == {graph.x.device}, elsewhere
            assert graph.to("cpu").digests() == expected.digests()


@pytest.mark.parametrize(("offset", "expected"), [(1e9, True), (1e6, False), (0.1, False)])
def test_features_that_float32_cannot_tell_apart_are_noted(
    offset: float, expected: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be given as float32, as float64, and with values that float32 would round."""
    x = torch.stack([torch.full((6,), offset), torch.arange(6) + offset], dim=1)
    finer = torch.stack([torch.full((6,), 0.1), torch.arange(6)], dim=1).double() + offset
    for form in (x, x.double(), finer):
        Graph.build(**arguments(x=form))
    assert any("x[:, 1] varies by 1.71 around" in text for text in caplog.messages) == expected
