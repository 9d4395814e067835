"""Data sets are loaded by name, from raw files in the formats of PyG and OGB, or drawn."""

import contextlib
import gzip
import os
import socket
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch_geometric import datasets

from gistgnn.graphs import DATASETS, Graph, load, save_file
from gistgnn.graphs.ogb import OgbFiles
from tests.helpers.refusals import refused

from .raw_layouts import OGB, PYG, listing, write
from .samples import Malicious, arguments, assert_equal

# name: nodes, edges, features, classes, train, val, test
SIZES = {
    "cora": (526, 1052, 4, 3, 6, 500, 20),
    "amazon-photo": (20, 38, 4, 4, 12, 4, 4),
    "ppi": (78, 156, 3, 6, 60, 8, 10),
    "ogbn-arxiv": (10, 19, 3, 40, 5, 3, 2),
    "ogbn-products": (10, 19, 3, 47, 5, 3, 2),
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
    assert (
        graph.num_nodes,
        graph.num_edges,
        graph.num_features,
        graph.num_classes,
        *splits,
    ) == sizes
    assert (graph.name, graph.multi_label) == (name, name == "ppi")
    torch.manual_seed(1)
    assert_equal(load(name, root), graph)  # a drawn split is always the same
    if name == "cora":
        assert torch.allclose(graph.x.sum(1), torch.tensor(1.0))
    elif name == "ppi":  # no edge joins two of its graphs
        source, target = graph.edge_index
        assert all(
            torch.equal(split[source], split[target])
            for split in (graph.train, graph.val, graph.test)
        )
        assert torch.equal(source[source < 60] // 3, target[source < 60] // 3)
        assert graph.train.nonzero().flatten().tolist() == list(range(60))
    elif name == "ogbn-arxiv":
        assert graph.x[3].tolist() == [1.5, -3.0, 0.25]
        assert graph.y.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
        assert graph.test.nonzero().flatten().tolist() == [8, 9]


def test_amazon2m_has_the_split_sizes_of_cluster_gcn_in_proportion(tmp_path: Path) -> None:
    write("amazon2m", tmp_path, nodes=2449)
    graph, again, products = (
        load(name, tmp_path) for name in ("amazon2m", "amazon2m", "ogbn-products")
    )
    assert graph.name == "amazon2m"
    assert (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum())) == (1671, 39, 739)
    assert int((graph.train | graph.val | graph.test).sum()) == 2449
    assert torch.equal(graph.train, again.train)
    assert torch.equal(graph.edge_index, products.edge_index)


def fail(self: Any) -> None:
    assert socket.getdefaulttimeout() is not None
    raise URLError("offline")


def test_missing_files_are_named_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.Planetoid, "download", fail)
    with refused("cora", f"{tmp_path / PYG['cora'][0]}", "offline", "; put ", " there"):
        load("cora", tmp_path)
    assert socket.getdefaulttimeout() is None
    (tmp_path / "file").touch()
    with refused("cora: raw files are missing in "):
        load("cora", tmp_path / "file")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]
    folder = tmp_path / OGB["amazon2m"][0]
    with refused(
        f"{folder}/raw/edge.csv.gz",
        "http",
        f".zip as the folder {folder}",
    ):
        load("amazon2m", tmp_path)
    (write("amazon2m", tmp_path) / "raw" / "node-label.csv.gz").unlink()
    with refused("node-label.csv.gz: no such file"):
        load("amazon2m", tmp_path)


@pytest.mark.parametrize("name", ["cora", "ppi", "ogbn-arxiv"])
def test_damaged_files_are_refused(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(name, tmp_path)
    files = [
        path for path in sorted(tmp_path.rglob("*")) if path.is_file() and "list" not in path.name
    ]
    contents = {path: path.read_bytes() for path in files}
    # PyG's files are damaged together, and OGB's one by one.
    groups = [files] if name in PYG else [[file] for file in files]
    for damaged in groups:
        for path in damaged:
            path.write_bytes(contents[path][: min(40, len(contents[path]) // 2)])
        with refused(f"{name}: the raw files in ", "cannot be read"):
            load(name, tmp_path)
        for path in damaged:
            path.write_bytes(contents[path])
    assert "".join(capfd.readouterr()) == ""


def test_wrong_values_in_raw_files_are_refused(tmp_path: Path) -> None:
    file = write("amazon-photo", tmp_path) / "amazon_electronics_photo.npz"
    np.savez(file, **{**np.load(file), "labels": np.zeros(20, int)})
    with refused(
        "amazon-photo: the raw files in ",
        "Photo/raw cannot be read (InputError: y holds only the label 0",
    ):
        load("amazon-photo", tmp_path)
    labels = write("ogbn-arxiv", tmp_path) / "raw" / "node-label.csv.gz"
    labels.write_bytes(gzip.compress(b"40\n" * 10))
    with refused("ogbn-arxiv: the raw files", "y[0] is 40; expected labels below num_classes"):
        load("ogbn-arxiv", tmp_path)


def test_missing_files_are_downloaded_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any) -> None:
        (Path(self.raw_dir) / "train_feats.npy").write_bytes(b"half of it")
        raise TimeoutError("timed out")

    def download(self: Any) -> None:
        PYG["ppi"][1](Path(self.raw_dir))
        print("Downloading")

    monkeypatch.setattr(datasets.PPI, "download", interrupted)
    with refused("TimeoutError: timed out"):
        load("ppi", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.setattr(datasets.PPI, "download", download)
    assert load("ppi", tmp_path).name == "ppi"
    raw = tmp_path / PYG["ppi"][0]
    first, *remaining = sorted(raw.iterdir())
    assert remaining
    assert not first.name.startswith(".")
    first.unlink()
    before = listing(raw)
    assert load("ppi", tmp_path).name == "ppi"
    assert set(before) < set(listing(raw))  # files that are there are not replaced
    monkeypatch.setattr(datasets.PPI, "download", fail)
    assert load("ppi", tmp_path).name == "ppi"
    first.unlink()
    os.mkfifo(first)
    with refused(f"{first.name} is no regular file"):
        load("ppi", tmp_path)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_processed_files_in_the_root_are_not_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    root = tmp_path / "root"
    processed = write("cora", root).parent / "processed"
    processed.mkdir()
    for file in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Malicious(marker), processed / file)
    assert load("cora", root).num_nodes == 526
    assert not marker.exists()
    with contextlib.suppress(Exception):  # PyG may raise anything
        datasets.Planetoid(str(root / "Planetoid"), "Cora")
    assert marker.exists()  # the check above can fail


def test_ogb_s_files_are_parsed_once(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("ogbn-arxiv", tmp_path)
    first = load("ogbn-arxiv", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(OgbFiles, "graph", lambda *_: 1 / 0)
        assert_equal(load("ogbn-arxiv", tmp_path), first)
    write("ogbn-arxiv", tmp_path, nodes=12)
    assert load("ogbn-arxiv", tmp_path).num_nodes == 12
    os.utime(folder / "raw" / "edge.csv.gz", ns=(0, 0))
    assert load("ogbn-arxiv", tmp_path).num_nodes == 12
    assert len(list(cache_folder.iterdir())) == 1  # the older ones are gone


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("cora", (140, 500, 1000)),
        ("citeseer", (120, 500, 1000)),
        ("amazon-computers", (8251, 2750, 2751)),
    ],
)
def test_real_graphs_are_as_the_table_says(
    name: str, splits: tuple[int, int, int], shared_data: Path
) -> None:
    before = listing(shared_data)
    graph = load(name, shared_data)
    info = DATASETS[name]
    assert listing(shared_data) == before
    assert (graph.num_nodes, graph.num_edges) == (info.nodes, info.edges)
    assert (graph.num_features, graph.num_classes, graph.name) == (
        info.features,
        info.classes,
        name,
    )
    assert (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum())) == splits


def test_digits_are_as_the_table_says() -> None:
    graph = load("Digits")
    info = DATASETS["digits"]
    sizes = (info.nodes, info.edges, info.features, info.classes, info.train)
    train = int(graph.train.sum())
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes, train) == sizes


def test_a_path_is_loaded_as_a_file_and_a_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(Graph.build(**arguments()), tmp_path / "mine.npz")
    assert load(tmp_path / "mine.npz").name == "mine"
    assert load(str(tmp_path / "mine.npz"), "nowhere").num_nodes == 6
    with refused("absent.pt cannot be read (No such file"):
        load(tmp_path / "absent.pt")
    (tmp_path / "mine.txt").touch()
    with refused("mine.txt: the suffix is '.txt'"):
        load(tmp_path / "mine.txt")
    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()
    assert load("digits").num_nodes == 1797
    with refused("digits has no manifest.json"):
        load(tmp_path / "digits")


def test_an_unknown_name_lists_the_known_and_the_closest() -> None:
    closest = {
        "ogbn-arxv": "ogbn-arxiv",
        "synthetic:redit@0.1": "synthetic:reddit",
        "cora@0.5": "cora",
    }
    for name, expected in closest.items():
        with refused(f"'{name}'", f"did you mean {expected}?", *DATASETS):
            load(name)
    with refused("'zzz'"):
        load("zzz")
