"""Clusters by every method: each node is in one; the cache of them; what is refused."""

import math
import sys
from itertools import permutations
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.graphs import CSR, load, metis, streaming
from gistgnn.graphs.clustering import METHODS, Clusters, cluster
from tests.helpers.flips import flipped, some_bytes
from tests.helpers.logs import logged
from tests.helpers.refusals import refused

TWO_CLIQUES = [*permutations(range(6), 2), *permutations(range(6, 12), 2)]


def edges(pairs: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()


def both_ways(half: Tensor) -> Tensor:
    return torch.cat([half, half.flip(0)], dim=1)


def ring(nodes: int = 60) -> Tensor:
    at = torch.arange(nodes)
    return both_ways(torch.stack([at, (at + 1) % nodes]))


def check(clusters: Clusters, nodes: int) -> None:
    assert clusters.order.sort().values.tolist() == list(range(nodes))
    assert clusters.ptr[0] == 0
    assert clusters.ptr[-1] == nodes
    assert (clusters.sizes > 0).all()
    for k in range(len(clusters)):
        members = clusters.order[clusters.ptr[k] : clusters.ptr[k + 1]]
        assert (clusters.assignment[members] == k).all()
        assert (members.diff() > 0).all()


@pytest.fixture
def quick_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    """METIS runs in this process."""
    monkeypatch.setattr(metis, "metis_clusters", metis.partition_here)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_every_node_is_in_one_cluster(quick_metis: None, data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 40))
    node = st.integers(0, nodes - 1)
    graph = edges(data.draw(st.lists(st.tuples(node, node), max_size=80)))
    count = data.draw(st.integers(1, nodes))
    seed = data.draw(st.integers(0, 2**63 - 1))
    with logged() as notes:
        clusters = cluster(graph, nodes, count, "metis", seed)
    check(clusters, nodes)
    assert 1 <= len(clusters) <= count
    empty = f"{count - len(clusters)} of the {count} clusters are empty"
    assert any(empty in note for note in notes) == (len(clusters) < count)
    dealt = cluster(graph, nodes, count, "random", seed)
    check(dealt, nodes)
    assert len(dealt) == count
    assert dealt.sizes.max() - dealt.sizes.min() <= 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_FEWEST_EDGES", data.draw(st.integers(1, 8)))
        patch.setattr(streaming, "_MOST_EDGES", 8)
        streamed = cluster(graph, nodes, count, "stream", seed)
    check(streamed, nodes)
    assert len(streamed) <= count
    assert streamed.sizes.max() <= max(
        math.ceil(nodes / count), int(streaming.LARGEST * nodes / count)
    )
    split = cluster(graph, nodes, count, "split", seed)
    check(split, nodes)
    assert len(split) <= count


def test_stream_cuts_about_as_few_edges_as_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load("synthetic:amazon2m@0.005")
    count = 100
    cuts = {}
    for method in METHODS:
        clusters = cluster(graph.edges, graph.num_nodes, count, method)
        assert clusters.sizes.max() <= 1.1 * graph.num_nodes / count
        cuts[method] = 1 - clusters.kept_edges(graph.edges)
    assert cuts["stream"] < 1.2 * cuts["metis"] < cuts["random"] / 2
    inside = {method: 1 - share for method, share in cuts.items()}
    assert 10 * inside["random"] < 0.6 * inside["metis"] < inside["split"] < inside["metis"]
    # There are more pairs of clusters than may be counted.
    monkeypatch.setattr(streaming, "PAIRS", 2000)
    part = streaming.stream_clusters(graph.edges, count, 0)
    is_cut = part[graph.edges.col] != part[graph.edges.targets()]
    assert float(is_cut.mean()) < 1.2 * cuts["metis"]


def test_kept_edges_are_the_share_within_clusters() -> None:
    # The graph has a self-loop, and two isolated nodes.
    clusters = cluster(edges([*TWO_CLIQUES, (0, 6), (6, 0), (3, 3)]), 14, 2)
    assert clusters.kept_edges(CSR.of(edges(TWO_CLIQUES).flip(0), 14)) == 1
    assert clusters.kept_edges(CSR.of(edges([(1, 0), (6, 0)]), 14)) == 0.5
    assert clusters.kept_edges(CSR.of(edges([]), 14)) == 1


def test_a_directed_graph_is_clustered_as_undirected() -> None:
    half = edges([(i, j) for i, j in TWO_CLIQUES if i < j])
    assert torch.equal(cluster(half, 12, 2).order, cluster(both_ways(half), 12, 2).order)


def test_clusters_follow_from_the_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = load("digits")
    for method in METHODS:
        first = cluster(graph.edges, graph.num_nodes, 20, method, 1)
        monkeypatch.setenv("GISTGNN_CACHE", str(tmp_path / f"another for {method}"))
        again = cluster(graph.edge_index, graph.num_nodes, 20, method, 1)
        other_seed = cluster(graph.edges, graph.num_nodes, 20, method, 2)
        assert torch.equal(first.order, again.order)
        assert not torch.equal(first.order, other_seed.order)


def test_bad_values_and_a_failure_of_metis_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, -1, 61, 2.5, True, "4"):
        with refused(f"clusters is {count!r}, expected an integer"):
            cluster(ring(), 60, count)  # type: ignore[arg-type]
    with refused("method is 'louvain'", "metis, split, stream, random"):
        cluster(ring(), 60, 3, "louvain")
    with refused("seed is -1"):
        cluster(ring(), 60, 3, seed=-1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with refused("METIS failed on 60 nodes and 120 edges", "MiB of free memory"):
        cluster(ring(), 60, 5)


def test_the_cache_is_read_first(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    clusters = cluster(ring(), 60, 5, seed=3)
    assert clusters.path is not None
    assert clusters.path.parent == cache_folder
    monkeypatch.setattr(metis, "metis_clusters", None)  # cannot be called again
    shuffled = ring()[:, torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    for edge_index in (ring(), shuffled):
        again = cluster(edge_index, 60, 5, seed=3)
        assert torch.equal(again.order, clusters.order)
        assert torch.equal(again.ptr, clusters.ptr)
        assert again.path == clusters.path
    assert cluster(ring(), 60, 5, "random").path is None
    for other in ({"count": 6}, {"seed": 4}, {"edges": ring()[:, 1:]}, {"num_nodes": 61}):
        with pytest.raises(TypeError, match="not callable"):
            cluster(**{"edges": ring(), "num_nodes": 60, "count": 5, "seed": 3, **other})  # type: ignore[arg-type]


def test_a_damaged_or_foreign_file_in_the_cache_is_replaced(quick_metis: None) -> None:
    clusters = cluster(ring(), 60, 5)
    assert clusters.path
    foreign = [cluster(ring(30), 30, 5).path, cluster(ring(), 60, 50).path]
    content_before = clusters.path.read_bytes()
    size = len(content_before)
    contents = [content_before[: int(share * size)] for share in (0.0, 0.1, 0.5, 0.99)]
    contents += [path.read_bytes() for path in foreign if path]
    assert len(contents) == 6
    for content in contents:
        clusters.path.write_bytes(content)
        with logged() as notes:
            assert torch.equal(cluster(ring(), 60, 5).order, clusters.order)
        assert any(str(clusters.path) in note and "computed again" in note for note in notes)
        assert clusters.path.read_bytes() == content_before
    assert any("is of another graph" in note for note in notes)
    for position in some_bytes(clusters.path, 20):
        with flipped(clusters.path, position):
            assert torch.equal(cluster(ring(), 60, 5).order, clusters.order)


def test_an_unwritable_cache_is_ignored(cache_folder: Path) -> None:
    cache_folder.write_text("not a folder")
    clusters = cluster(ring(), 60, 5)
    check(clusters, 60)
    assert clusters.path is None
