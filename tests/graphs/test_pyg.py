import contextlib
import os
import shutil
import socket
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from torch_geometric import datasets

from gistgnn.errors import InputError
from gistgnn.graphs import load

from .raw_layouts import PYG, listing, write
from .samples import Malicious


def _class(name: str) -> Any:
    return getattr(datasets, PYG[name][0].split("/")[0])


def _fail(self: Any) -> None:
    assert socket.getdefaulttimeout() is not None
    raise URLError("offline")


# name: nodes, edges, features, classes, train, val, test
SIZES = {
    "pubmed": (526, 1052, 4, 3, 6, 500, 20),
    "amazon-photo": (20, 38, 4, 4, 12, 4, 4),
    "coauthor-cs": (20, 38, 4, 4, 12, 4, 4),
    "reddit": (12, 22, 5, 3, 4, 4, 4),
    "flickr": (12, 22, 5, 3, 4, 2, 6),
    "ppi": (78, 156, 3, 6, 60, 8, 10),
}


@pytest.mark.parametrize(("name", "sizes"), SIZES.items())
def test_raw_files_are_read_and_nothing_is_written(
    name: str, sizes: tuple[int, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    write(name, root)
    before = listing(root)
    graph = load(name.upper(), root)
    assert listing(root) == before
    assert capfd.readouterr().out == ""
    splits = (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum()))
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes, *splits) == sizes
    assert graph.name == name
    assert graph.multi_label == (name == "ppi")


def test_features_are_normalised_where_registered(tmp_path: Path) -> None:
    for name in ("pubmed", "reddit"):
        write(name, tmp_path)
    assert torch.allclose(load("pubmed", tmp_path).x.sum(1), torch.tensor(1.0))
    assert load("reddit", tmp_path).x.min() < 0


def test_no_edge_joins_two_graphs_of_ppi(tmp_path: Path) -> None:
    write("ppi", tmp_path)
    graph = load("ppi", tmp_path)
    source, target = graph.edge_index
    for split in (graph.train, graph.val, graph.test):
        assert torch.equal(split[source], split[target])
    assert torch.equal(source[source < 60] // 3, target[source < 60] // 3)
    assert graph.train.nonzero().flatten().tolist() == list(range(60))


def test_a_drawn_split_is_always_the_same(tmp_path: Path) -> None:
    write("amazon-photo", tmp_path)
    torch.manual_seed(1)
    one = load("amazon-photo", tmp_path)
    torch.manual_seed(2)
    other = load("amazon-photo", tmp_path)
    assert torch.equal(one.train, other.train)
    assert torch.equal(one.val, other.val)


@pytest.mark.parametrize("name", PYG)
def test_missing_files_offline(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_class(name), "download", _fail)
    with pytest.raises(InputError, match=f"^{name}: raw files are missing in .*offline.*; put .* there$") as caught:
        load(name, tmp_path)
    assert str(tmp_path / PYG[name][0]) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert socket.getdefaulttimeout() is None


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"reddit: raw files are missing in .*file/Reddit/raw and .*; put reddit_data.npz"
    ):
        load("reddit", tmp_path / "file")


@pytest.mark.parametrize("name", PYG)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    for path in write(name, tmp_path).iterdir():
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=f"^{name}: the raw files in .* cannot be read") as caught:
        load(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_wrong_values_in_raw_files(tmp_path: Path) -> None:
    raw = write("flickr", tmp_path)
    (raw / "class_map.json").write_text("{}")
    with pytest.raises(
        InputError, match=r"^flickr: the raw files in .*Flickr cannot be read \(InputError: y holds no label"
    ):
        load("flickr", tmp_path)


@pytest.mark.parametrize("name", ["pubmed", "amazon-photo", "reddit"])
def test_missing_files_are_downloaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: Any) -> None:
        PYG[name][1](Path(self.raw_dir))
        print("Downloading")

    monkeypatch.setattr(_class(name), "download", download)
    assert load(name, tmp_path).name == name
    raw = tmp_path / PYG[name][0]
    assert not [path for path in raw.iterdir() if path.name.startswith(".")]
    monkeypatch.setattr(_class(name), "download", _fail)
    assert load(name, tmp_path).name == name


def test_files_that_are_there_are_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write("flickr", tmp_path)
    (raw / "feats.npy").unlink()
    before = listing(raw)
    monkeypatch.setattr(_class("flickr"), "download", lambda self: PYG["flickr"][1](Path(self.raw_dir)))
    assert load("flickr", tmp_path).num_nodes == 12
    assert set(before) < set(listing(raw))


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: Any) -> None:
        (Path(self.raw_dir) / "reddit_data.npz").write_bytes(b"half of it")
        raise TimeoutError("timed out")

    monkeypatch.setattr(_class("reddit"), "download", download)
    with pytest.raises(InputError, match="TimeoutError: timed out"):
        load("reddit", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_processed_files_in_the_root_are_not_loaded(shared_data: Path, tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    root = tmp_path / "root" / "Planetoid"
    shutil.copytree(shared_data / "Planetoid" / "Cora" / "raw", root / "Cora" / "raw")
    processed = root / "Cora" / "processed"
    processed.mkdir()
    for file in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Malicious(marker), processed / file)
    assert load("cora", tmp_path / "root").num_nodes == 2708
    assert not marker.exists()
    with contextlib.suppress(Exception):  # PyG may raise anything
        datasets.Planetoid(str(root), "Cora")
    assert marker.exists()  # the check above can fail


@pytest.mark.parametrize("name", ["pubmed", "amazon-photo", "reddit"])
def test_a_pipe_in_the_place_of_a_raw_file_is_refused(tmp_path: Path, name: str) -> None:
    path = next(each for each in sorted(write(name, tmp_path).iterdir()))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=f"{path.name} is no regular file"):
        load(name, tmp_path)
