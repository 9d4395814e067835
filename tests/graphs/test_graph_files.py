"""A user's `.npz` and `.pt` are read as they were written.

If they are damaged or made to harm, they are refused in one line.
"""

import io
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import ToSparseTensor

from gistgnn.cli.options import GRAPH_FILES
from gistgnn.graphs import Graph, from_hetero, load, load_file, load_nodes, save_file
from gistgnn.graphs.files import FORMATS
from tests.helpers.edges import edge_graph
from tests.helpers.refusals import refused

from .samples import Malicious, arguments, arrays_of, as_data, assert_equal

EMPTY = torch.zeros(6, 2)
SMALL = Graph.build(**arguments())


def npz(path: Path, **changes: Any) -> None:
    """Write a valid graph with some arrays replaced, of which bytes are written as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in {**arrays_of(SMALL), **changes}.items():
            archive.writestr(f"{name}.npy", value if isinstance(value, bytes) else array(value))


def array(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


def header(text: str, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content


def refuses(path: Path, *messages: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with refused(str(path), *messages):
            load_file(path)


def test_a_npz_may_hold_masks_and_edge_data_and_has_to_hold_five_arrays(
    tmp_path: Path,
) -> None:
    arrays = {
        key: np.asarray(value) for key, value in arguments(train=[True, True] + [False] * 4).items()
    }
    np.savez_compressed(tmp_path / "g.NPZ.npz", **arrays, num_classes=9, other=1)
    graph = load_file(tmp_path / "g.NPZ.npz")
    assert (graph.num_classes, int(graph.train.sum())) == (9, 2)
    for key in ("edge_index", "x", "y", "train", "val"):
        np.savez(
            tmp_path / "g.npz", **{name: value for name, value in arrays.items() if name != key}
        )
        refuses(
            tmp_path / "g.npz",
            f"has no {key}; expected the arrays edge_index, x, y, train, val (found ",
        )
    with_data = edge_graph()
    save_file(with_data, tmp_path / "data.npz")
    _, _, edge_data_of_nodes, _ = load_nodes(tmp_path / "data.npz")
    for edge_data in (load_file(tmp_path / "data.npz").edge_data, edge_data_of_nodes):
        assert edge_data.keys() == with_data.edge_data.keys()
        for name, value in edge_data.items():
            assert torch.equal(value, with_data.edge_data[name]), name


def test_saving_replaces_the_file_or_says_why_not(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    path.write_text("old")
    save_file(SMALL, path)
    assert load_file(path).num_nodes == 6
    with refused("the suffix is '.pt'; expected .npz"):
        save_file(SMALL, tmp_path / "g.pt")
    with refused("cannot write ", "g.npz"):
        save_file(SMALL, path / "g.npz")
    assert [file.name for file in tmp_path.iterdir()] == ["g.npz"]


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_nodes_alone_need_no_labels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"g.{suffix}"
    x = SMALL.x
    edges = SMALL.edge_index
    if suffix == "npz":
        np.savez(path, x=x.numpy(), edge_index=edges)
    else:
        torch.save(Data(x=x, edge_index=edges), path)
    features, edge_index, _, count = load_nodes(path)
    assert count == 6
    assert torch.equal(features, x)
    assert torch.equal(edge_index, edges)
    refuses(path, "has no ")
    if suffix == "npz":
        np.savez(path, x=x.numpy())
    else:
        torch.save(Data(x=x), path)
    with refused("has no edge_index"):
        load_nodes(path)


def test_wrong_values_name_the_file(tmp_path: Path) -> None:
    with refused("graph.csv", "gistgnn convert"):
        load_file(tmp_path / "graph.csv")
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "links.parquet").touch()
    with refused("tables holds tables", f"convert {tables}/edges.parquet", "nodes.parquet`"):
        load(tables)
    npz(tmp_path / "g.npz", val=np.array([1, 2]), train=np.array([0, 1]))
    refuses(tmp_path / "g.npz", "train and val share 1 nodes")
    without_store = as_data(SMALL)
    without_store.__dict__["_store"] = None
    of_a_list = as_data(SMALL)
    of_a_list.__dict__["_store"] = [1, 2]
    looked_at = as_data(SMALL)
    looked_at.node_attrs()  # as transforms do; it keeps what it has found
    for content, message in (
        (Data(x=torch.ones(3, 2)), "the Data has no edge_index, y, train_mask, val_mask; expected"),
        ({"x": torch.ones(2)}, "the data is a dict; expected"),
        (
            (Data(), Data()),
            "the data is a tuple; expected a torch_geometric.data.Data: for a label of each graph "
            "see ",
        ),
        (
            as_data(SMALL, names=np.array([1])),
            "its names is of NumPy: data.names = torch.as_tensor(data.names), or del",
        ),
        (as_data(SMALL, a={"b": [np.float64(2)]}, c="d"), "its b is of NumPy"),
        (
            as_data(SMALL, x=csr_matrix(SMALL.x)),
            "its x is of SciPy: data.x = torch.as_tensor(data.x.toarray())",
        ),
        (as_data(SMALL, day=date(2026, 1, 2)), "its day is a datetime.date: del data.day"),
        (Data(x=SMALL.x, edge_label=SMALL.y), "for links see examples/link_prediction.py"),
        (looked_at, "write it with torch.save(Data.from_dict(data.to_dict()), path)"),
        (torch.ones(3), "the data is a Tensor; expected"),
        (without_store, "cannot be read"),
        (of_a_list, "cannot be read"),
    ):
        torch.save(content, tmp_path / "g.pt")
        refuses(tmp_path / "g.pt", message)


SHAPES = (
    f"({2**62},)",
    f"({10**30}, 2)",
    "(-6, -2)",
    "(7, 2)",
    "(5, 2)",
    "12",
    "(" * 500,
    "(None,)",
)
MEMBERS: list[tuple[str, Any, str]] = [
    *(("x", header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n", bytes(48)),
    "g.npz")
      for shape in SHAPES),
    ("x", header("{}"), "x.npy is damaged"),
    ("x", header("{" * 9000), "g.npz"),
    ("x", b"\x93NUMPY\x09\x09" + bytes(100), "x.npy is damaged"),
    ("x", np.array(["a", "b"]), "x has dtype <U1; expected a dense array of real numbers"),
    ("x", np.zeros(2, [("a", "f4")]), "x has dtype"),
    ("num_classes", np.array(b"3"), "num_classes is b'3'"),
    ("num_classes", np.array([3.5]), "num_classes is 3.5, expected an integer"),
    ("num_classes", np.array(2**62), f"num_classes is {2**62}, expected an integer from 2 to "
                                     "10,000"),
]  # fmt: skip


def test_arrays_that_are_damaged_or_none_are_refused(tmp_path: Path) -> None:
    for name, content, message in MEMBERS:
        npz(tmp_path / "g.npz", **{name: content})
        refuses(tmp_path / "g.npz", message)


def test_sizes_in_an_archive_are_compared_with_memory_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    npz(path)
    content = bytearray(path.read_bytes())
    entries = [match.start() for match in re.finditer(b"PK\x01\x02", content)]
    assert len(entries) == 6
    for start in entries:  # six arrays of 4 GiB
        content[start + 20 : start + 28] = struct.pack("<II", 2**32 - 2, 2**32 - 2)
    path.write_bytes(content)
    refuses(path, "takes 24 GiB of memory, ", " are available")


ODD: list[tuple[Callable[[], Any], str]] = [
    (lambda: torch.quantize_per_tensor(EMPTY, 1.0, 0, torch.qint8), "x has dtype torch.qint8"),
    (lambda: EMPTY.to(torch.float8_e4m3fn), "x has dtype torch.float8_e4m3fn"),
    (lambda: EMPTY.to(torch.complex64).to_sparse(), "x has dtype complex64; expected real numbers"),
    (lambda: EMPTY.to(torch.complex64).conj(), "x has dtype torch.complex64"),
    (lambda: "text", "x is a str; expected a tensor"),
]


@pytest.mark.filterwarnings("ignore")  # of torch, about making such tensors
def test_tensors_that_are_not_plain_are_refused(tmp_path: Path) -> None:
    for make, message in ODD:
        torch.save(as_data(SMALL, x=make()), tmp_path / "g.pt")
        refuses(tmp_path / "g.pt", message)
        value = make()
        if isinstance(value, torch.Tensor):
            with refused(message):
                Graph.build(**arguments(x=value))


class OneFile(InMemoryDataset):
    """A data set of PyG, as its users write them.

    Its process() saves the graphs, and leaves processed/data.pt.
    """

    raw_file_names: ClassVar[list[str]] = []
    processed_file_names = "data.pt"

    def __init__(self, root: Path, graphs: list[Any]) -> None:
        self.graphs = graphs
        super().__init__(str(root), log=False)

    def process(self) -> None:
        self.save(self.graphs, self.processed_paths[0])


def test_a_file_that_a_data_set_of_pyg_has_saved_is_read(tmp_path: Path) -> None:
    data = as_data(SMALL)
    typed = HeteroData({"a": dict(data.items())})
    typed["a", "to", "a"].edge_index = typed["a"].pop("edge_index")
    for name, graph, expected in (
        ("one", data, SMALL),
        ("typed", typed, Graph.from_pyg(from_hetero(typed))),
    ):
        OneFile(tmp_path / name, [graph])
        assert_equal(load_file(tmp_path / name / "processed/data.pt"), expected)
        OneFile(tmp_path / f"two {name}", [graph, graph])
        refuses(
            tmp_path / f"two {name}" / "processed/data.pt",
            "holds 2 graphs of a data set; expected one: for a",
        )
    torch.save((data, None), tmp_path / "old.pt")
    assert_equal(load_file(tmp_path / "old.pt"), SMALL)


@pytest.mark.parametrize("layout", [None, torch.sparse_coo])
@pytest.mark.parametrize("name", ["", "edge_weight", "edge_attr"])
def test_adj_t_has_the_edges_the_other_way_round(tmp_path: Path, layout: Any, name: str) -> None:
    pairs = torch.arange(36).flip(0)
    edges = torch.stack([pairs // 6, pairs % 6])
    values = {"edge_weight": torch.rand(36), "edge_attr": torch.rand(36, 3)}
    edge_data_of_name = {name: values[name]} if name else {}
    data = as_data(SMALL, edge_index=edges, **edge_data_of_name)
    expected = Graph.from_pyg(data)
    sparse = ToSparseTensor(layout=layout)(data.clone())
    assert "edge_index" not in sparse
    assert_equal(Graph.from_pyg(sparse), expected)
    torch.save(sparse, tmp_path / "g.pt")
    refuses(tmp_path / "g.pt", "write it with torch.save(Data.from_dict(data.to_dict()), path)")
    torch.save(Data.from_dict(sparse.to_dict()), tmp_path / "g.pt")
    assert_equal(load_file(tmp_path / "g.pt"), expected)
    _, edge_index, edge_data, _ = load_nodes(tmp_path / "g.pt")
    assert torch.equal(edge_index, expected.edge_index)
    assert edge_data.keys() == expected.edge_data.keys()
    assert all(torch.equal(value, expected.edge_data[key]) for key, value in edge_data.items())


def test_adj_t_of_torch_sparse_is_read_and_a_dense_one_refused() -> None:
    class SparseTensor:
        def coo(self) -> tuple[Any, Any, Any]:
            return SMALL.edge_index[1], SMALL.edge_index[0], None

    assert_equal(Graph.from_pyg(as_data(SMALL, edge_index=None, adj_t=SparseTensor())), SMALL)
    with refused("adj_t is a Tensor; expected a sparse matrix"):
        Graph.from_pyg(as_data(SMALL, edge_index=None, adj_t=torch.eye(6)))


def test_no_pickle_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    for suffix in ("npz", "pt"):
        (tmp_path / f"g.{suffix}").write_bytes(pickle.dumps(Malicious(marker), protocol=2))
        refuses(tmp_path / f"g.{suffix}", "cannot be read")
    np.savez(
        tmp_path / "g.npz", **{**arrays_of(SMALL), "y": np.array([Malicious(marker)], dtype=object)}
    )
    refuses(tmp_path / "g.npz", "y.npy is damaged, or not of numbers ", "Object arrays")
    for data in (
        as_data(SMALL, extra=Malicious(marker)),
        HeteroData({"a": {"y": Malicious(marker)}}),
    ):
        torch.save(data, tmp_path / "g.pt")
        refuses(tmp_path / "g.pt", "Python objects other than a Data of plain tensors")
    assert not marker.exists()
    torch.load(tmp_path / "g.pt", weights_only=False)
    assert marker.exists()  # the check above can fail


def test_the_command_line_knows_the_formats() -> None:
    assert tuple(FORMATS) == GRAPH_FILES  # it repeats them, as the readers import torch
