import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gistgnn.graphs import DATASETS, Graph, load, save_file
from gistgnn.graphs.graph import SPLIT_SEED
from tests.helpers.refusals import refused

from .raw_layouts import listing
from .samples import arguments, assert_equal


@pytest.mark.parametrize(
    ("name", "splits"),
    [("cora", (140, 500, 1000)), ("citeseer", (120, 500, 1000)), ("amazon-computers", (8251, 2750, 2751))],
)
def test_real_graphs_are_as_the_table_says(name: str, splits: tuple[int, int, int], shared_data: Path) -> None:
    """Of data that a clone lacks: it compares the figures of the table with the real files."""
    before = listing(shared_data)
    graph, info = load(name, shared_data), DATASETS[name]
    assert listing(shared_data) == before
    assert (graph.num_nodes, graph.num_edges) == (info.nodes, info.edges)
    assert (graph.num_features, graph.num_classes, graph.name) == (info.features, info.classes, name)
    assert (int(graph.train.sum()), int(graph.val.sum()), int(graph.test.sum())) == splits


def test_digits_are_made_of_scikit_learns_images() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import NearestNeighbors

    pixels, y = load_digits(return_X_y=True)
    # Distances of whole numbers are exact, and a tree breaks ties in the same way for any number of threads.
    nearest = NearestNeighbors(n_neighbors=10, algorithm="ball_tree").fit(pixels).kneighbors_graph()
    edges = np.stack((nearest + nearest.T).nonzero())
    train, rest = train_test_split(np.arange(len(y)), train_size=0.1, stratify=y, random_state=SPLIT_SEED)
    val, test = train_test_split(rest, train_size=2 / 9, stratify=y[rest], random_state=SPLIT_SEED)
    made, stored, info = Graph.build(pixels / 16.0, edges, y, train=train, val=val, test=test), load("Digits"), DATASETS
    assert_equal(made, stored)
    assert (stored.num_nodes, stored.num_edges) == (info["digits"].nodes, info["digits"].edges)
    assert (stored.num_features, stored.num_classes) == (info["digits"].features, info["digits"].classes)


def test_a_path_is_loaded_as_a_file_and_a_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for name, closest in (
        ("ogbn-arxv", "ogbn-arxiv"),
        ("synthetic:redit@0.1", "synthetic:reddit"),
        ("cora@0.5", "cora"),
    ):
        with refused(f"'{name}' is neither a data set nor a file (did you mean {closest}?)", *DATASETS):
            load(name)
    with refused("'zzz' is neither a data set nor a file; expected"):
        load("zzz")


def test_importing_is_cheap() -> None:
    heavy = {"torch_geometric", "duckdb", "sklearn", "scipy", "pandas"}
    code = f"import sys, gistgnn.graphs; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
