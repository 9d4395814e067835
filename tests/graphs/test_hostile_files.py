"""Graph files that are damaged, or made to harm: each is refused in one line, before much is read."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gistgnn.errors import InputError
from gistgnn.graphs import Graph, load_file, save_file

from .samples import arguments, arrays_of, assert_equal

EMPTY = torch.zeros(6, 2)


def _data(**changes: Any) -> Data:
    graph = Graph.build(**arguments())
    masks = {f"{name}_mask": getattr(graph, name) for name in ("train", "val", "test")}
    return Data(**{"x": graph.x, "edge_index": graph.edge_index, "y": graph.y, **masks, **changes})


def _npz(path: Path, **members: bytes) -> None:
    """Write a valid graph with some members replaced; their checksums are right."""
    arrays = arrays_of(Graph.build(**arguments()))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**{name: _array(array) for name, array in arrays.items()}, **members}.items():
            archive.writestr(f"{name}.npy", content)


def _header(text: str, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content


def _array(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


def _refused(path: Path, *messages: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as caught:
            load_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    for message in messages:
        assert message in str(caught.value)


@pytest.mark.parametrize(
    "shape", [f"({2**62},)", f"({10**30}, 2)", "(-6, -2)", "(7, 2)", "(5, 2)", "12", "(" * 500, "(None,)"]
)
def test_headers_of_arrays_are_compared_with_the_file(tmp_path: Path, shape: str) -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"
    _npz(tmp_path / "g.npz", x=_header(text, bytes(48)))
    _refused(tmp_path / "g.npz", "is damaged")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"text", "x.npy is damaged"),
        (_header("{}"), "x.npy is damaged"),
        (_header("{" * 9000), "is damaged"),
        (b"\x93NUMPY\x09\x09" + bytes(100), "x.npy is damaged"),
        (_array(np.array(["a", "b"])), "x has dtype <U1; expected a dense array of real numbers"),
        (_array(np.zeros(2, "M8[s]")), "x has dtype datetime64[s]"),
        (_array(np.zeros(2, [("a", "f4")])), "x has dtype"),
    ],
    ids=range(7),
)
def test_members_that_are_no_arrays_of_numbers(tmp_path: Path, member: bytes, message: str) -> None:
    _npz(tmp_path / "g.npz", x=member)
    _refused(tmp_path / "g.npz", message)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array(b"3"), "num_classes has shape [] and dtype |S1"),
        (np.array(2**62), f"num_classes is {2**62}, expected an integer from 2 to 1000000000"),
        (np.array(2**63, np.uint64), "expected an integer from 2"),
        (np.array(-1), "num_classes is -1"),
        (np.array([3, 4]), "num_classes has shape [2]"),
    ],
)
def test_number_of_classes(tmp_path: Path, value: Any, message: str) -> None:
    _npz(tmp_path / "g.npz", num_classes=_array(value))
    _refused(tmp_path / "g.npz", message)


def test_a_label_beyond_64_bits_is_not_taken_for_unlabelled(tmp_path: Path) -> None:
    y = np.array([0, 1, 2, 0, 1, 2**64 - 1], np.uint64)
    _npz(tmp_path / "g.npz", y=_array(y))
    _refused(tmp_path / "g.npz", "y holds 18446744073709551615; expected integers below 2^63")
    torch.save(_data(y=torch.from_numpy(y)), tmp_path / "g.pt")
    _refused(tmp_path / "g.pt", "y holds a number of 2^63 or more")


def test_sizes_in_an_archive_are_compared_with_memory_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    _npz(path)
    sizes = struct.pack("<II", 2**32 - 2, 2**32 - 2)
    content = bytearray(path.read_bytes())
    for start in (i for i in range(len(content)) if content[i : i + 4] == b"PK\x01\x02"):
        content[start + 20 : start + 28] = sizes  # of six arrays: 24 GiB
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"takes 24 GiB of memory, .* are available"):
        load_file(path)


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: EMPTY.to("meta"), "x is on the device meta"),
    "quantised": (lambda: torch.quantize_per_tensor(EMPTY, 1.0, 0, torch.qint8), "x has dtype torch.qint8"),
    "nested": (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "x is a nested tensor"),
    "float8": (lambda: EMPTY.to(torch.float8_e4m3fn), "x has dtype torch.float8_e4m3fn"),
    "sparse": (lambda: EMPTY.to_sparse(), "x is a sparse tensor"),
    "complex": (lambda: EMPTY.to(torch.complex64).conj(), "x has dtype torch.complex64"),
    "terabytes": (lambda: torch.zeros(1, 1).expand(2**20, 2**20), "takes 4 TiB of memory"),
    "text": (lambda: "text", "x is a str; expected a tensor"),
    "dictionary": (lambda: {"a": EMPTY}, "x is a dict; expected a tensor"),
    "number": (lambda: 10**30, "x is a int; expected a tensor"),
}


@pytest.mark.filterwarnings("ignore")  # of torch, about making such tensors
@pytest.mark.parametrize("odd", ODD)
def test_tensors_that_are_not_plain(tmp_path: Path, odd: str) -> None:
    make, message = ODD[odd]
    torch.save(_data(x=make()), tmp_path / "g.pt")
    _refused(tmp_path / "g.pt", message)
    if isinstance(value := make(), torch.Tensor):
        with pytest.raises(InputError):
            Graph.build(**arguments(x=value))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.float16, torch.float64])
def test_other_types_of_numbers_are_converted(tmp_path: Path, dtype: torch.dtype) -> None:
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    torch.save(_data(y=y.to(dtype), edge_index=_data().edge_index.to(torch.uint32)), tmp_path / "g.pt")
    assert_equal(load_file(tmp_path / "g.pt"), Graph.build(**arguments(y=y)))


@pytest.mark.parametrize("store", [None, [1, 2]])
def test_data_without_its_store(tmp_path: Path, store: Any) -> None:
    data = _data()
    data.__dict__["_store"] = store
    torch.save(data, tmp_path / "g.pt")
    _refused(tmp_path / "g.pt", "the Data has no attributes")


def test_every_flipped_byte_of_a_pt_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "g.pt"
    torch.save(_data(), path)
    whole, expected, refused = path.read_bytes(), Graph.build(**arguments()), 0
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert_equal(load_file(path), expected)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > 100


@pytest.mark.parametrize("name", ["$x_{$", "a\nb", "\udcff\udcfe", "\x1b[31m"])
def test_names_are_kept_as_they_can_be_printed(tmp_path: Path, name: str) -> None:
    save_file(Graph.build(**arguments()), tmp_path / f"{name}.npz")
    found = load_file(tmp_path / f"{name}.npz").name
    assert found.isprintable()
    assert found.encode()
    assert found == {"$x_{$": "$x_{$", "a\nb": "a\\nb", "\udcff\udcfe": "\\udcff\\udcfe", "\x1b[31m": "\\x1b[31m"}[name]
