import gzip
import os
import sys
import zipfile
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from ogb.io import read_graph_raw
from ogb.utils import url

from gistgnn.errors import InputError
from gistgnn.graphs import load

from . import raw_layouts
from .samples import assert_equal

FOLDERS = {
    "ogbn-arxiv": ("ogbn_arxiv", "time"),
    "ogbn-products": ("ogbn_products", "sales_ranking"),
    "amazon2m": ("ogbn_products", "sales_ranking"),
}


def _write(name: str, root: Path, nodes: int = 10) -> Path:
    folder, split = FOLDERS[name]
    raw_layouts.ogb(root / folder, split, nodes)
    return root / folder


def _no_parsing(*args: object, **kwargs: object) -> None:
    raise AssertionError("parsed again")


@pytest.mark.parametrize(("name", "classes"), [("ogbn-arxiv", 40), ("ogbn-products", 47)])
def test_raw_files_are_read_and_nothing_is_written(
    name: str, classes: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    _write(name, root)
    before = raw_layouts.listing(root)
    graph = load(name, root)
    assert raw_layouts.listing(root) == before
    assert capfd.readouterr().out == ""
    assert (graph.num_nodes, graph.num_features, graph.num_classes, graph.name) == (10, 3, classes, name)
    assert graph.num_edges == 19  # 9 in both directions and one self-loop
    assert graph.x[3].tolist() == [1.5, -3.0, 0.25]
    assert graph.y.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    splits = [mask.nonzero().flatten().tolist() for mask in (graph.train, graph.val, graph.test)]
    assert splits == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]


def test_amazon2m_has_the_split_sizes_of_cluster_gcn_in_proportion(tmp_path: Path) -> None:
    _write("amazon2m", tmp_path, nodes=2449)
    graph, again, products = (load(name, tmp_path) for name in ("amazon2m", "amazon2m", "ogbn-products"))
    assert graph.name == "amazon2m"
    assert (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum())) == (1671, 39, 739)
    assert int((graph.train | graph.val | graph.test).sum()) == 2449
    assert torch.equal(graph.train, again.train)
    assert torch.equal(graph.edge_index, products.edge_index)


def test_the_second_time_comes_from_the_cache(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write("ogbn-arxiv", tmp_path)
    first = load("ogbn-arxiv", tmp_path)
    assert len(list(cache_folder.iterdir())) == 1
    monkeypatch.setattr(read_graph_raw, "read_csv_graph_raw", _no_parsing)
    second = load("ogbn-arxiv", tmp_path)
    assert_equal(first, second)
    assert second.name == "ogbn-arxiv"


def test_changed_raw_files_are_parsed_again(tmp_path: Path) -> None:
    folder = _write("ogbn-arxiv", tmp_path)
    load("ogbn-arxiv", tmp_path)
    _write("ogbn-arxiv", tmp_path, nodes=12)
    assert load("ogbn-arxiv", tmp_path).num_nodes == 12
    os.utime(folder / "raw" / "edge.csv.gz", ns=(0, 0))
    assert load("ogbn-arxiv", tmp_path).num_nodes == 12


@pytest.mark.parametrize("keep", [0, 100, 1000])
def test_a_damaged_cache_is_built_again(keep: int, tmp_path: Path, cache_folder: Path) -> None:
    _write("ogbn-arxiv", tmp_path)
    first = load("ogbn-arxiv", tmp_path)
    (file,) = cache_folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:keep])
    assert_equal(load("ogbn-arxiv", tmp_path), first)
    assert len(file.read_bytes()) == len(whole)


def test_an_unwritable_cache_is_skipped(tmp_path: Path, cache_folder: Path) -> None:
    cache_folder.write_text("not a folder")
    _write("ogbn-arxiv", tmp_path)
    assert load("ogbn-arxiv", tmp_path).num_nodes == 10


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GISTGNN_CACHE")
    monkeypatch.setattr(Path, "home", home)
    _write("ogbn-arxiv", tmp_path)
    assert load("ogbn-arxiv", tmp_path).num_nodes == 10


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_files_offline(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise URLError("offline")

    monkeypatch.setattr(url, "download_url", fail)
    with pytest.raises(
        InputError, match=rf"^{name}: raw files are missing in .*offline.*; put raw/edge\.csv\.gz, .* there$"
    ) as caught:
        load(name, tmp_path)
    assert str(tmp_path / FOLDERS[name][0]) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_downloaded_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def download(address: str, folder: str, log: bool = True) -> str:
        assert address.endswith("/arxiv.zip")
        raw_layouts.ogb(tmp_path / "arxiv", "time", 10)
        with zipfile.ZipFile(Path(folder) / "arxiv.zip", "w") as archive:
            for path in (tmp_path / "arxiv").rglob("*.gz"):
                archive.write(path, path.relative_to(tmp_path))
        return str(Path(folder) / "arxiv.zip")

    monkeypatch.setattr(url, "download_url", download)
    root = tmp_path / "root"
    assert load("ogbn-arxiv", root).num_nodes == 10
    assert sorted(path.name for path in (root / "ogbn_arxiv").iterdir()) == ["raw", "split"]
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("file", ["raw/edge", "raw/node-feat", "raw/node-label", "split/time/valid"])
def test_damaged_files(file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _write("ogbn-arxiv", tmp_path) / f"{file}.csv.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"^ogbn-arxiv: the raw files in .* cannot be read") as caught:
        load("ogbn-arxiv", tmp_path)
    assert "\n" not in str(caught.value)
    assert "".join(capfd.readouterr()) == ""  # ogb prints words and progress bars


def test_wrong_values_in_raw_files(tmp_path: Path) -> None:
    path = _write("ogbn-arxiv", tmp_path) / "raw" / "node-label.csv.gz"
    path.write_bytes(gzip.compress(b"40\n" * 10))
    with pytest.raises(
        InputError, match=r"^ogbn-arxiv: the raw files .* y\[0\] is 40; expected labels below num_classes"
    ):
        load("ogbn-arxiv", tmp_path)


def test_without_ogb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(InputError, match=r"^amazon2m: the package ogb is not installed; run: pip install ogb$"):
        load("amazon2m", tmp_path)
