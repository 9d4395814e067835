"""What is computed once for a graph is never taken for another graph, and old files go."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gistgnn import load
from gistgnn.graphs import CSR, Graph
from gistgnn.graphs.cache import (
    KEPT_OF_A_KIND,
    derived,
    derived_files,
    remove_unused,
    trim_clusters,
)
from gistgnn.graphs.clustering import cluster
from gistgnn.graphs.standardise import Standardisation
from gistgnn.sampling import whole_graph
from gistgnn.utils.tensors import tensor_digest
from tests.cli.in_process import refused, run
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.flips import flipped

from .folders import some_graph, write_value


def weighted_graph() -> Graph:
    weights = np.random.default_rng(5).random(300).astype(np.float32) + 0.5
    return some_graph(40, 300, edge_weight=weights)


def expected_product(graph: Graph) -> Tensor:
    """Ā x by PyG's normalisation and a dense product."""
    edge_index, weight = gcn_norm(
        graph.edge_index, graph.edge_weight, graph.num_nodes, dtype=torch.float32
    )
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    dense.index_put_((edge_index[1], edge_index[0]), weight.double(), accumulate=True)
    return (dense @ graph.x.double()).float()


def incremented(tensor: Tensor, index: int) -> Tensor:
    changed = tensor.clone()
    changed.view(-1)[index] += 1
    return changed


def permuted(graph: Graph) -> Graph:
    """The graph whose features of two nodes change places, so that all their sums stay."""
    order = torch.arange(graph.num_nodes)
    order[[18, 19]] = order[[19, 18]]
    return replace(graph, x=graph.x[order])


def rewired(graph: Graph) -> Graph:
    """As many edges into each node, of which one comes from elsewhere."""
    col = graph.edges.col.clone()
    col[len(col) // 2] = (col[len(col) // 2] + 1) % graph.num_nodes
    return replace(graph, edges=CSR(graph.edges.rowptr, col))


CHANGES: dict[str, Callable[[Graph], Graph]] = {
    "weights": lambda graph: replace(graph, edge_weight=torch.ones(graph.num_edges)),
    "no weights": lambda graph: replace(graph, edge_weight=None),
    "one weight": lambda graph: replace(
        graph, edge_weight=incremented(graph.edge_data["edge_weight"], 150)
    ),
    "x in the middle": lambda graph: replace(graph, x=incremented(graph.x, 60)),
    "nodes permuted": permuted,
    "edges": rewired,
    "x scaled": lambda graph: Standardisation.of(graph).graph(graph),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_product_is_of_the_graph_it_is_asked_for(change: str, tmp_path: Path) -> None:
    make_clustered(weighted_graph(), 4, tmp_path / "graph")
    stored = load(tmp_path / "graph")
    changed = CHANGES[change](stored)
    for graph in (stored, changed, stored):
        product = whole_graph(graph).product
        assert product is not None
        torch.testing.assert_close(product("gcn"), expected_product(graph))
    assert not torch.allclose(expected_product(stored), expected_product(changed))


def test_a_file_that_was_changed_under_its_manifest_is_another_graph(tmp_path: Path) -> None:
    make_clustered(weighted_graph(), 4, tmp_path / "graph")
    before = load(tmp_path / "graph")
    assert before.digests() == load(tmp_path / "graph").digests()
    assert whole_graph(before).product("gcn").shape == before.x.shape  # type: ignore[misc]
    digests = before.digests()
    del before
    write_value(tmp_path / "graph" / "x.npy", (20, 1), 9)
    after = load(tmp_path / "graph")
    torch.testing.assert_close(whole_graph(after).product("gcn"), expected_product(after))  # type: ignore[misc]
    assert {name for name, digest in after.digests().items() if digest != digests[name]} == {
        "features"
    }


@pytest.mark.parametrize("scaled", [False, True])
def test_a_mapped_graph_has_the_digests_of_the_same_graph_in_memory(
    scaled: bool, tmp_path: Path
) -> None:
    graph, _ = make_clustered(weighted_graph(), 4, tmp_path / "graph")
    stored = load(tmp_path / "graph")
    if scaled:
        graph = Standardisation.of(graph).graph(graph)
        stored = Standardisation.of(stored).graph(stored)
    expected = {**graph.digests(), "clusters": stored.digests()["clusters"]}
    assert stored.digests() == expected
    shutil.copytree(tmp_path / "graph", tmp_path / "copied")
    copied = load(tmp_path / "copied")
    if not scaled:
        expected = Standardisation.of(stored).graph(stored).digests()
    assert Standardisation.of(copied).graph(copied).digests() == expected


def test_a_digest_is_of_type_shape_and_values() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    same = [x.clone(), x.t().contiguous().t(), torch.cat([x, x])[:3]]
    different = [
        x.double(),
        x.reshape(4, 3),
        x.t(),
        incremented(x, 11),
        x.to_sparse_csr(),
        x.bfloat16(),
        x.flatten(),
    ]
    different += [torch.tensor(1.0), torch.tensor(True), torch.empty(0, 4)]
    assert {tensor_digest(tensor) for tensor in same} == {tensor_digest(x)}
    digests = {tensor_digest(tensor) for tensor in (x, *different)}
    assert len(digests) == 1 + len(different)
    nan = torch.tensor([float("nan"), 1])
    assert tensor_digest(nan) == tensor_digest(nan.clone())


def kept_as(folder: Path, value: float) -> Tensor:
    return derived(folder, "product-gcn", [value], (2, 3), lambda array: array.fill(value))


def test_old_files_of_a_kind_go_unless_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "product-mine.npy").write_text("a file of the user's")
    (tmp_path / "product-gcn-0123456789abcdef.npy").write_text("of an older version")
    used = kept_as(tmp_path, 1.0)
    for value in (2.0, 3.0, 4.0, 5.0):
        assert kept_as(tmp_path, value).unique().tolist() == [value]
    assert used.unique().tolist() == [1.0]
    values = {float(np.load(path)[0, 0]) for path in derived_files(tmp_path)}
    assert values == {1.0, 4.0, 5.0}
    assert len(values) == KEPT_OF_A_KIND + 1
    assert (tmp_path / "product-mine.npy").exists()
    (path,) = (path for path in derived_files(tmp_path) if np.load(path)[0, 0] == 1.0)
    assert not remove_unused(path)
    del used
    assert remove_unused(path)
    assert not path.exists()


def test_clusters_that_were_not_used_for_longest_go(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = some_graph(40, 300)
    cluster(graph.edges, 40, 4, "stream", 0)
    (first,) = cache_folder.glob("clusters-*.npz")
    os.utime(first, ns=(0, first.stat().st_mtime_ns))
    cluster(graph.edges, 40, 5, "stream", 0)
    (second,) = set(cache_folder.glob("clusters-*.npz")) - {first}
    cluster(graph.edges, 40, 4, "stream", 0)  # it is used again
    os.utime(second, ns=(0, second.stat().st_mtime_ns))
    monkeypatch.setattr("gistgnn.graphs.cache.CLUSTERS_LIMIT", first.stat().st_size + 10)
    trim_clusters(cache_folder)
    assert list(cache_folder.glob("clusters-*.npz")) == [first]
    cluster(rewired(graph).edges, 40, 4, "stream", 0)  # of another graph
    assert first not in cache_folder.glob("clusters-*.npz")


def test_a_command_lists_and_removes_what_is_kept(
    tmp_path: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_clustered(weighted_graph(), 4, tmp_path / "graph")
    arrays = {path.name for path in (tmp_path / "graph").iterdir()}
    graph = load(tmp_path / "graph")
    scaled = Standardisation.of(graph).graph(graph)
    whole_graph(graph).product("gcn")  # type: ignore[misc]
    cluster(graph.edges, 40, 4, "stream", 0)
    cluster(rewired(graph).edges, 40, 4, "stream", 0)
    assert run("datasets", tmp_path / "graph") == 0
    listed = capsys.readouterr().out
    for name in ("x-standardised-", "product-gcn-", "clusters-"):
        assert listed.count(name) == 1
    (product,) = (tmp_path / "graph").glob("product-gcn-*.npy")
    assert run("datasets", tmp_path / "graph", "--verify") == 0
    with flipped(product, 200):
        refused(capsys, f"{product} is damaged", "datasets", tmp_path / "graph", "--verify")
    assert run("datasets", tmp_path / "graph", "--clear-cache") == 0
    assert "left " in capsys.readouterr().out  # `scaled` is mapped by this process
    del scaled
    assert run("datasets", tmp_path / "graph", "--clear-cache") == 0
    assert {path.name for path in (tmp_path / "graph").iterdir() if path.name[0] != "."} == arrays
    assert len(list(cache_folder.glob("clusters-*.npz"))) == 1  # the other graph's
    assert run("datasets", "--clear-cache") == 0
    assert not list(cache_folder.iterdir())
