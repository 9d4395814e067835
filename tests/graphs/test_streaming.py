"""Clusters of graphs whose edges are read in blocks."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.graphs import load, metis, streaming
from gistgnn.graphs.clustering import cluster
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.metis import partition_here as in_process
from gistgnn.graphs.streaming import Block, packed


def csr(pairs: Any, nodes: int) -> CSR:
    """The edges (source, target), each once."""
    target, source = np.array(sorted({(t, s) for s, t in pairs}), np.int64).reshape(-1, 2).T
    return CSR(torch.from_numpy(np.searchsorted(target, np.arange(nodes + 1))), torch.from_numpy(source.copy()))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_node_is_in_a_cluster_that_is_not_too_large(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 60))
    node = st.integers(0, nodes - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=200))
    if data.draw(st.booleans()):
        pairs += [(t, s) for s, t in pairs]
    count, seed = data.draw(st.integers(1, nodes)), data.draw(st.integers(0, 2**40))
    edges = csr(pairs, nodes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metis, "metis_clusters", in_process)
        patch.setattr(streaming, "_EDGES", (data.draw(st.integers(1, 8)), 8))
        part = streaming.stream_clusters(edges, count, seed)
        assert np.array_equal(part, streaming.stream_clusters(edges, count, seed))
    assert part.shape == (nodes,)
    assert part.min() >= 0
    assert part.max() < count
    assert np.bincount(part).max() <= max(-(-nodes // count), int(streaming.LARGEST * nodes / count))


def test_it_cuts_about_as_few_edges_as_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, count, cuts = load("synthetic:amazon2m@0.005"), 100, {}
    for method in ("metis", "stream", "random"):
        clusters = cluster(graph.edges, graph.num_nodes, count, method)
        assert clusters.sizes.max() <= 1.1 * graph.num_nodes / count
        cuts[method] = 1 - clusters.kept_edges(graph.edges)
    assert cuts["stream"] < 1.2 * cuts["metis"] < cuts["random"] / 2
    monkeypatch.setattr(streaming, "PAIRS", 2000)  # there are more pairs of clusters than may be counted
    part = streaming.stream_clusters(graph.edges, count, 0)
    assert float((part[graph.edges.col] != part[graph.edges.targets()]).mean()) < 1.2 * cuts["metis"]


def test_pairs_with_many_edges_stay_in_proportion() -> None:
    rng = np.random.default_rng(0)
    heavy = [(0, other) for other in range(1, 5) for _ in range(400)]
    light = [tuple(pair) for pair in rng.integers(5, 200, (3000, 2)).tolist()]
    pairs = np.array(heavy + light)[rng.permutation(4600)]
    blocks = []
    for chunk in np.array_split(pairs, 40):
        source, target = chunk[np.argsort(chunk[:, 1], kind="stable")].T
        blocks.append(Block(slice(0, 200), source, target))
    graph = streaming.contracted(iter(blocks), np.arange(200, dtype=np.int32), 200, 500, np.random.default_rng(1))
    assert graph.nnz <= 6 * 500
    assert (graph != graph.T).nnz == 0
    kept = np.array([graph[0, other] for other in range(1, 5)])
    assert 40 < kept.min() <= kept.max() < min(1.5 * kept.min(), 390)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=100), st.integers(1, 12), st.integers(1, 30))
def test_the_smallest_clusters_are_put_together(part: list[int], most: int, clusters: int) -> None:
    before = np.array(part, np.int32)
    after = packed(before, most, clusters)
    sizes = np.bincount(after)
    assert (sizes > 0).all()
    assert len(set(zip(part, after.tolist(), strict=True))) == len(set(part))  # none is torn apart
    largest = np.bincount(before).max()
    assert sizes.max() <= max(most, largest)
    assert len(sizes) <= max(clusters, 2 * len(part) / most + 2, len(part) if most < 2 else 0)
