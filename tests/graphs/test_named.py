import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gistgnn.errors import InputError
from gistgnn.graphs import DATASETS, Graph, load, save_file

from .raw_layouts import listing
from .samples import arguments, assert_equal

REAL = ("cora", "citeseer", "amazon-computers", "coauthor-physics")


@pytest.mark.parametrize("name", REAL)
def test_real_graphs_are_as_registered_and_their_folder_is_unchanged(
    name: str, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listing(shared_data)
    graph, info = load(name, shared_data), DATASETS[name]
    assert listing(shared_data) == before
    assert capsys.readouterr().out == ""
    assert (graph.num_nodes, graph.num_edges) == (info.nodes, info.edges)
    assert (graph.num_features, graph.num_classes) == (info.features, info.classes)
    assert graph.name == name
    sums = graph.x.sum(1)
    assert torch.allclose(sums[sums > 0], torch.tensor(1.0), atol=1e-4)


@pytest.mark.parametrize(("name", "sizes"), [("cora", (140, 500, 1000)), ("amazon-computers", (8251, 2750, 2751))])
def test_real_splits(name: str, sizes: tuple[int, int, int], shared_data: Path) -> None:
    graph = load(name, shared_data)
    assert (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum())) == sizes


def test_digits_are_as_registered_and_always_the_same() -> None:
    graph, again, info = load("digits"), load("Digits"), DATASETS["digits"]
    assert (graph.num_nodes, graph.num_edges) == (info.nodes, info.edges)
    assert (graph.num_features, graph.num_classes) == (info.features, info.classes)
    assert (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum())) == (179, 359, 1259)
    assert torch.equal(graph.train, again.train)
    assert graph.x.min() == 0
    assert graph.x.max() == 1
    for split in (graph.train, graph.val, graph.test):  # stratified
        shares = torch.bincount(graph.y[split]) / split.sum()
        assert torch.allclose(shares, torch.bincount(graph.y) / graph.num_nodes, atol=0.01)


def test_digits_are_made_of_scikit_learns_images() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import NearestNeighbors

    from gistgnn.graphs.splits import SPLIT_SEED

    pixels, y = load_digits(return_X_y=True)
    # Distances of whole numbers are exact, and a tree breaks ties in the same way for any number of threads.
    nearest = NearestNeighbors(n_neighbors=10, algorithm="ball_tree").fit(pixels).kneighbors_graph()
    edges = np.stack((nearest + nearest.T).nonzero())
    nodes = np.arange(len(y))
    train, rest = train_test_split(nodes, train_size=0.1, stratify=y, random_state=SPLIT_SEED)
    val, test = train_test_split(rest, train_size=2 / 9, stratify=y[rest], random_state=SPLIT_SEED)
    made, stored = Graph.build(pixels / 16.0, edges, y, train=train, val=val, test=test), load("digits")
    assert_equal(made, stored)


def test_digits_edges_go_both_ways() -> None:
    source, target = load("digits").edge_index
    assert {*zip(source.tolist(), target.tolist(), strict=True)} == {
        *zip(target.tolist(), source.tolist(), strict=True)
    }
    assert not (source == target).any()
    assert torch.bincount(target).min() >= 10


def test_a_path_is_loaded_as_a_file(tmp_path: Path) -> None:
    save_file(Graph.build(**arguments()), tmp_path / "mine.npz")
    assert load(tmp_path / "mine.npz").name == "mine"
    assert load(str(tmp_path / "mine.npz"), "nowhere").num_nodes == 6
    with pytest.raises(InputError, match=r"absent\.pt: no such file"):
        load(tmp_path / "absent.pt")
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match=r"mine\.txt: the suffix is '\.txt'"):
        load(tmp_path / "mine.txt")


def test_a_name_wins_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()
    assert load("digits").num_nodes == 1797
    with pytest.raises(InputError, match=r"digits has no manifest\.json"):
        load(tmp_path / "digits")


def test_an_unknown_name_lists_the_known_and_the_closest() -> None:
    with pytest.raises(InputError, match=r"'ogbn-arxv' is neither .* \(did you mean ogbn-arxiv\?\)") as caught:
        load("ogbn-arxv")
    assert all(name in str(caught.value) for name in DATASETS)
    with pytest.raises(InputError, match="'zzz' is neither a data set nor a file; expected"):
        load("zzz")


def test_the_registry_is_consistent() -> None:
    assert len(DATASETS) == 17
    assert all(name == info.name == name.lower() for name, info in DATASETS.items())
    assert [name for name, info in DATASETS.items() if info.task == "multi-label"] == ["ppi"]


def test_importing_is_cheap() -> None:
    heavy = {"torch_geometric", "ogb", "sklearn", "scipy", "pandas"}
    code = f"import sys, gistgnn.graphs; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
