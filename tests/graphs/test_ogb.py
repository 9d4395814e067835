import gzip
import os
import sys
from pathlib import Path

import pytest
import torch

from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.graphs.ogb import OgbFiles

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
    monkeypatch.setattr(OgbFiles, "graph", _no_parsing)
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


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GISTGNN_CACHE")
    monkeypatch.setattr(Path, "home", home)
    _write("ogbn-arxiv", tmp_path)
    assert load("ogbn-arxiv", tmp_path).num_nodes == 10


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_files_are_named_with_their_source(name: str, tmp_path: Path) -> None:
    folder, _ = FOLDERS[name]
    message = rf"^{name}: .*{folder}/raw/edge\.csv\.gz: no such file; unpack http.*\.zip as the folder .*{folder}$"
    with pytest.raises(InputError, match=message):
        load(name, tmp_path)
    (_write(name, tmp_path) / "raw" / "node-label.csv.gz").unlink()
    with pytest.raises(InputError, match=r"node-label\.csv\.gz: no such file"):
        load(name, tmp_path)


@pytest.mark.parametrize("file", ["raw/edge", "raw/node-feat", "raw/node-label", "split/time/valid"])
def test_damaged_files(file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _write("ogbn-arxiv", tmp_path) / f"{file}.csv.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"^ogbn-arxiv: the raw files in .* cannot be read") as caught:
        load("ogbn-arxiv", tmp_path)
    assert "\n" not in str(caught.value)
    assert "".join(capfd.readouterr()) == ""


def test_wrong_values_in_raw_files(tmp_path: Path) -> None:
    path = _write("ogbn-arxiv", tmp_path) / "raw" / "node-label.csv.gz"
    path.write_bytes(gzip.compress(b"40\n" * 10))
    with pytest.raises(
        InputError, match=r"^ogbn-arxiv: the raw files .* y\[0\] is 40; expected labels below num_classes"
    ):
        load("ogbn-arxiv", tmp_path)


def test_without_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write("amazon2m", tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"duckdb is not installed.*pip install 'gistgnn\[convert\]'"):
        load("amazon2m", tmp_path)
