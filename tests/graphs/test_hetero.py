"""A PyG `HeteroData` as one graph."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from gistgnn import GIST
from gistgnn.graphs import from_hetero, load_file, load_nodes
from tests.cli.in_process import run
from tests.helpers.edges import Relational
from tests.helpers.logs import logged
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused

AUTHORS = 8
PAPERS = 24
WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


def library() -> HeteroData:
    """Authors, places without features, and papers.

    The papers have labels, and are not the first type.
    """
    graph = tiny_graph(PAPERS)
    data = HeteroData()
    rng = torch.Generator().manual_seed(0)
    data["author"].x = torch.rand(AUTHORS, 2, generator=rng) + 1
    data["paper"].x = graph.x
    data["paper"].y = graph.y
    for name in ("train", "val", "test"):
        data["paper"][f"{name}_mask"] = getattr(graph, name)
    data["place"].num_nodes = 3
    data[WRITES].edge_index = torch.stack([torch.arange(PAPERS) % AUTHORS, torch.arange(PAPERS)])
    data[CITES].edge_index = graph.edge_index
    data["paper", "at", "place"].edge_index = torch.stack(
        [torch.arange(PAPERS), torch.arange(PAPERS) % 3]
    )
    return data


def test_edges_are_those_of_to_homogeneous_and_features_are_in_blocks() -> None:
    data = library()
    ordered = HeteroData()
    for key in ("paper", "author", "place", *data.edge_types):  # as joined: the target first
        ordered[key].update(dict(data[key].items()))
    expected = ordered.to_homogeneous()
    joined = from_hetero(data, standardise=False)
    assert torch.equal(joined.edge_index, expected.edge_index)
    assert torch.equal(joined.edge_type, expected.edge_type)
    one = torch.ones(PAPERS + AUTHORS + 3, 1)
    papers = data["paper"].x
    authors = data["author"].x
    blocks = (torch.cat([papers, one[:PAPERS]], 1), torch.cat([authors, one[:AUTHORS]], 1), one[:3])
    assert torch.equal(joined.x, torch.block_diag(*blocks))
    assert joined.y.tolist() == data["paper"].y.tolist() + [-1] * (AUTHORS + 3)
    assert torch.equal(joined.val_mask.nonzero(), data["paper"].val_mask.nonzero())
    for store in data.edge_stores:
        store.edge_weight = torch.rand(store.num_edges)
    weights = torch.cat([store.edge_weight for store in data.edge_stores])
    assert torch.equal(from_hetero(data).edge_weight, weights)
    scaled = from_hetero(data).x[PAPERS:-3, -4:-2]
    torch.testing.assert_close(scaled, (authors - authors.mean(0)) / authors.std(0, correction=0))


def sorted_edges(data: Data) -> list[tuple[int, int, int, float]]:
    """Source, target, type and weight of every edge."""
    source, target = data.edge_index.tolist()
    types = data.edge_type.tolist()
    return sorted(zip(source, target, types, data.edge_weight.tolist(), strict=True))


def test_adj_t_of_every_edge_type_has_the_same_edges() -> None:
    data = library()
    generator = torch.Generator().manual_seed(1)
    without = from_hetero(ToSparseTensor()(library()))
    assert "edge_weight" not in without
    assert without.edge_index.shape == from_hetero(data).edge_index.shape
    for store in data.edge_stores:
        store.edge_weight = torch.rand(store.num_edges, generator=generator)
    expected = from_hetero(data)
    from_adj_t = from_hetero(ToSparseTensor()(data))
    assert sorted_edges(from_adj_t) == sorted_edges(expected)


def test_features_of_a_type_that_float32_rounds_are_noted() -> None:
    data = library()
    data["author"].x = torch.arange(AUTHORS).reshape(-1, 1) * 3 + 2**24
    with logged() as notes:
        from_hetero(data)
    assert any("x of the HeteroData's 'author'[:, 0] " in note for note in notes)


def test_a_run_on_it_is_a_run_on_its_file_and_predicts_the_target_alone(tmp_path: Path) -> None:
    data = library()
    joined = from_hetero(library())
    torch.save(data, tmp_path / "library.pt")
    results = []
    for graph in (data, joined, load_file(tmp_path / "library.pt")):
        gist = GIST(lambda width: Relational((width,), joined.num_features), widths=8, sub_gcns=2)
        results.append(gist.fit(graph, epochs=8, progress=False))
    assert results[0].test == results[1].test == results[2].test
    x, edge_index, edge_data, count = load_nodes(tmp_path / "library.pt")
    assert count == PAPERS
    with torch.no_grad():
        outputs = results[0].model(x, edge_index, **edge_data)
    papers = data["paper"]
    is_right = outputs[joined.target_nodes].argmax(1) == papers.y
    accuracy = float(is_right[papers.test_mask].float().mean())
    assert accuracy == pytest.approx(results[0].test["accuracy"])
    options = (
        "--model", "gcn", "--hidden", 8, "--sub-gcns", 2, "--epochs", 2,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert run("train", "--dataset", tmp_path / "library.pt", *options) == 0
    assert run("predict", tmp_path / "run", "--output", tmp_path / "p.csv") == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + PAPERS


# a store, and its changed attributes; None deletes one
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (
        "paper",
        {"y": None},
        "target is None, and the HeteroData has y on the node types []; expected",
    ),
    (
        "author",
        {"y": torch.zeros(8), "train_mask": torch.ones(8)},
        "y on the node types ['author', 'paper']; expected",
    ),
    (
        "paper",
        {"y": torch.zeros(5)},
        "'paper': y has shape [5]; expected a row for each of 24 nodes",
    ),
    (
        "paper",
        {"val_mask": torch.ones(5).bool()},
        "'paper': val is a mask of length 5; expected 24",
    ),
    (
        "author",
        {"x": (torch.eye(8) * 1j).to_sparse()},
        "'author': x has dtype complex64; expected real numbers",
    ),
    ("author", {"num_nodes": 7}, "'author': x has 8 rows, and num_nodes is 7"),
    ("place", {"num_nodes": None}, "'place': num_nodes is None; expected x, or num_nodes"),
    (CITES, {"edge_index": None}, "('paper', 'cites', 'paper'): it has no edge_index"),
    (
        CITES,
        {"edge_index": torch.ones(2, 3)},
        "edge_index is torch.float32 [2, 3]; expected integers",
    ),
    (WRITES, {"edge_index": torch.tensor([[8], [0]])}, "expected some below [[8], [24]]"),
    (
        WRITES,
        {"edge_weight": torch.ones(1)},
        "('author', 'writes', 'paper'): edge_weight has shape [1]; expected [24]",
    ),
    (
        WRITES,
        {"edge_attr": torch.ones(24, 2)},
        "'cites', 'paper') has no edge_attr, and ('author', 'writes', 'paper')",
    ),
]


def test_what_cannot_be_joined_is_refused() -> None:
    for store, changes, message in REFUSED:
        data = library()
        for name, value in changes.items():
            data[store][name] = value
        with refused(message):
            from_hetero(data)
    with refused("target is 'author'", "['paper']"):
        from_hetero(library(), "author")
    with refused("training nodes", "HeteroData"):
        GIST(lambda width: Relational((width,), 12), widths=8).fit(library(), inductive=True)
    with refused("the data is a Data; expected a HeteroData"):
        from_hetero(Data())  # type: ignore[arg-type]
