import os
import pickle
import socket
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch_geometric.data import Data

from gistgnn.errors import InputError
from gistgnn.graphs import Graph, load_file, load_nodes, save_file

from .samples import Malicious, arguments, assert_equal, graphs


def _as_data(graph: Graph) -> Data:
    masks = {"train_mask": graph.train, "val_mask": graph.val, "test_mask": graph.test}
    return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks)


def _arrays(**changes: Any) -> dict[str, Any]:
    return {key: np.asarray(value) for key, value in arguments(**changes).items()}


def _refused(path: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_file(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@given(graphs())
def test_npz_round_trip(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.npz"
        save_file(graph, path)
        loaded = load_file(path)
        assert os.listdir(folder) == ["mine.npz"]
    assert_equal(loaded, graph)
    assert loaded.name == "mine"


@pytest.mark.parametrize("y", [[0, 1, 2, 0, 1, -1], [[0, 1], [1, 1], [0, 0], [1, 0], [0, 1], [0, 0]]])
def test_pt_round_trip(tmp_path: Path, y: Any) -> None:
    graph = Graph.build(**arguments(y=y))
    torch.save(_as_data(graph), tmp_path / "mine.pt")
    loaded = load_file(str(tmp_path / "mine.pt"))
    assert_equal(loaded, graph)
    assert loaded.name == "mine"


def test_npz_with_node_numbers_masks_and_num_classes(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "g.NPZ.npz", **_arrays(train=[True, True] + [False] * 4), num_classes=9, other=1)
    graph = load_file(tmp_path / "g.NPZ.npz")
    assert graph.num_classes == 9
    assert graph.train.sum() == 2


def test_saving_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    path.write_text("old")
    save_file(Graph.build(**arguments()), path)
    assert load_file(path).num_nodes == 6
    assert [file.name for file in tmp_path.iterdir()] == ["g.npz"]


def test_saving_to_a_bad_path(tmp_path: Path) -> None:
    graph = Graph.build(**arguments())
    with pytest.raises(InputError, match=r"the suffix is '.pt'; expected .npz"):
        save_file(graph, tmp_path / "g.pt")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write .*g\.npz"):
        save_file(graph, tmp_path / "file" / "g.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_nodes_alone_need_no_labels(tmp_path: Path, suffix: str) -> None:
    graph = Graph.build(**arguments())
    path = tmp_path / f"g.{suffix}"
    if suffix == "npz":
        np.savez(path, x=graph.x.numpy(), edge_index=graph.edge_index.numpy())
    else:
        torch.save(Data(x=graph.x, edge_index=graph.edge_index), path)
    x, edge_index, _ = load_nodes(path)
    assert torch.equal(x, graph.x)
    assert torch.equal(edge_index, graph.edge_index)
    with pytest.raises(InputError):
        load_file(path)
    np.savez(path, x=np.zeros((3, 2))) if suffix == "npz" else torch.save(Data(x=torch.zeros(3, 2)), path)
    with pytest.raises(InputError, match="has no edge_index"):
        load_nodes(path)


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_missing_file_and_folder(tmp_path: Path, suffix: str) -> None:
    _refused(tmp_path / f"absent.{suffix}", "no such file")
    (tmp_path / f"folder.{suffix}").mkdir()
    _refused(tmp_path / f"folder.{suffix}", "cannot be opened")


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / f"s.{suffix}"))
    for name in ("pipe", "zero", "s"):
        _refused(tmp_path / f"{name}.{suffix}", "is a pipe, a socket or a device; expected a file")
        with pytest.raises(InputError, match="is a pipe"):
            load_nodes(tmp_path / f"{name}.{suffix}")


def test_unknown_suffix(tmp_path: Path) -> None:
    _refused(tmp_path / "graph.csv", "the suffix is '.csv'; expected a graph in a .npz or a .pt file")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_truncated_file(tmp_path: Path, suffix: str, keep: float) -> None:
    path = tmp_path / f"g.{suffix}"
    graph = Graph.build(**arguments())
    if suffix == "npz":
        save_file(graph, path)
    else:
        torch.save(_as_data(graph), path)
    whole = path.read_bytes()
    for content in (whole[: int(len(whole) * keep)], b"edge_index,x,y\n"):
        path.write_bytes(content)
        _refused(path, "is damaged")


def test_every_flipped_byte_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    save_file(Graph.build(**arguments()), path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            load_file(path)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017  (a byte that does not matter is no error)


@pytest.mark.parametrize("key", ["edge_index", "x", "y", "train", "val", "test"])
def test_missing_key(tmp_path: Path, key: str) -> None:
    arrays = _arrays()
    del arrays[key]
    np.savez(tmp_path / "g.npz", **arrays)
    _refused(tmp_path / "g.npz", f"has no {key}; expected the arrays edge_index, x, y, train, val, test")


def test_wrong_num_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **_arrays(), num_classes=[3.5])
    _refused(tmp_path / "g.npz", "num_classes has shape .* expected one integer")


def test_wrong_values_name_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **_arrays(val=[1, 2]))
    _refused(tmp_path / "g.npz", "train and val share 1 nodes")
    torch.save(Data(x=torch.ones(3, 2)), tmp_path / "g.pt")
    _refused(tmp_path / "g.pt", "the Data has no edge_index, y, train_mask, val_mask, test_mask")


@pytest.mark.parametrize("content", [{"x": torch.ones(2)}, (Data(), None), torch.ones(3)])
def test_pt_of_another_type(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "g.pt")
    _refused(tmp_path / "g.pt", "the data is a .*; expected")


def test_no_array_of_objects_is_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    arrays = _arrays()
    arrays["y"] = np.array([Malicious(marker)], dtype=object)
    np.savez(tmp_path / "g.npz", **arrays)
    _refused(tmp_path / "g.npz", "y.npy is damaged, or not of numbers .*Object arrays")
    assert not marker.exists()


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_no_pickle_is_executed(tmp_path: Path, suffix: str) -> None:
    marker = tmp_path / "unpickled"
    path = tmp_path / f"g.{suffix}"
    path.write_bytes(pickle.dumps(Malicious(marker), protocol=2))
    _refused(path, "is damaged")
    assert not marker.exists()


def test_no_object_in_a_pt_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    data = _as_data(Graph.build(**arguments()))
    data.extra = Malicious(marker)
    torch.save(data, tmp_path / "g.pt")
    _refused(tmp_path / "g.pt", "Python objects other than a Data of plain tensors")
    assert not marker.exists()
    torch.load(tmp_path / "g.pt", weights_only=False)
    assert marker.exists()  # the check above can fail
