"""A graph that is mapped from a folder of clusters is as the same graph in memory.

It trains alike, and is evaluated alike.
"""

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import load
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import layer_costs, least_bytes
from gistgnn.graphs import Graph
from gistgnn.graphs.clustering import Clusters
from gistgnn.graphs.standardise import Standardisation
from gistgnn.nn import MODELS, adjacency
from gistgnn.sampling import AutoSampling, Batch, whole_graph
from gistgnn.sampling.clusters import ClusterBatches
from tests.graph_folders.folders import some_graph
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.fitting import same as same_tensors
from tests.helpers.refusals import refused

OPERATORS = ("gcn", "mean", "sum")


@contextlib.contextmanager
def little_memory(columns: int, nodes: int, entries: int = 11) -> Iterator[None]:
    """Let Āx be computed so many columns at a time.

    Of its rows, so many entries are read at once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gistgnn.sampling.batch.available_bytes", lambda _: 2 * 4 * nodes * columns)
        patch.setattr(adjacency, "ENTRIES", entries)
        yield


def in_memory(graph: Graph, folder: Path) -> tuple[Batch, Clusters]:
    """The same graph in memory, and its clusters, which are ranges of nodes there too."""
    ptr = load(folder).cluster_ptr
    assert ptr is not None
    return whole_graph(graph), Clusters(torch.arange(graph.num_nodes), ptr)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.integers(12, 50))
    edges = draw(st.integers(1, 300))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    sizes = {"edge_weight": (edges,), "edge_attr": (edges, 2)}
    data = {name: rng.random(size).astype(np.float32) for name, size in sizes.items()}
    return some_graph(nodes, edges, seed, **(data if draw(st.booleans()) else {}))


@settings(max_examples=25)
@given(graphs(), st.integers(1, 9), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_batches_are_those_in_memory(
    graph: Graph, count: int, per_batch: int, precompute: bool, columns: int
) -> None:
    with tempfile.TemporaryDirectory() as name, little_memory(columns, graph.num_nodes):
        folder = Path(name) / "graph"
        same, _ = make_clustered(graph, count, folder)
        full_batch, clusters = in_memory(same, folder)
        per_batch = min(per_batch, len(clusters))
        one = ClusterBatches(full_batch, clusters, per_batch, 3, precompute=precompute)
        other = ClusterBatches(whole_graph(load(folder)), None, per_batch, 3, precompute=precompute)
        assert one.steps_per_epoch == other.steps_per_epoch
        for left, right in zip(one.batches(0, 7), other.batches(0, 7), strict=True):
            for name in ("x", "y", "loss_nodes", "edge_index"):
                assert torch.equal(getattr(left, name), getattr(right, name)), name
            assert same_tensors(left.edge_data, right.edge_data)
            for operator in OPERATORS if precompute else ():
                assert torch.equal(left.product(operator), right.product(operator)), operator


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [None, 1.3], ids=["enough memory", "little memory"])
@pytest.mark.parametrize("some", [False, True], ids=["all nodes", "some nodes"])
@pytest.mark.parametrize("name", list(MODELS))
def test_evaluation_is_that_of_the_graph_in_memory(
    name: str, some: bool, memory: float | None, tmp_path: Path
) -> None:
    """Nodes that nobody needs are not computed.

    ``memory`` is in multiples of the least that is needed.
    """
    nodes, edges = (300, 400) if some else (100, 750)
    mask = torch.rand(nodes) < (10 / nodes if some else 2)
    x = np.random.default_rng(1).normal(size=(nodes, 12)).astype(np.float32)
    same, _ = make_clustered(some_graph(nodes, edges, x=x), 9, tmp_path / "graph")
    torch.manual_seed(0)
    model = MODELS[name](12, (9, 6), 3).eval()
    full_batch = whole_graph(same)
    stored = whole_graph(load(tmp_path / "graph"))
    with torch.no_grad():
        expected = Evaluation("whole").prepare(model, full_batch).logits(model)
        room = None
        if memory is not None:
            room = round(memory * least_bytes(layer_costs(model, stored), stored))
        inference = Evaluation("auto", room).prepare(model, stored, wanted=mask)
        logits = inference.logits(model)
        pieces = len(list(inference.outputs(model)))
    assert inference.describe()["method"] == "layers"
    assert memory is None or some or pieces > 1
    torch.testing.assert_close(logits[mask], expected[mask], rtol=1e-5, atol=1e-6)
    assert torch.equal(logits[mask].argmax(dim=1), expected[mask].argmax(dim=1))
    if some:
        assert torch.equal(inference.nodes, mask)
        assert bool(logits[~mask].isnan().all())
        assert sum(len(rows) for rows in inference._required) < nodes


def test_parts_are_the_clusters_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, _ = make_clustered(some_graph(200, 2000), 7, tmp_path / "graph")
    full_batch, clusters = in_memory(same, tmp_path / "graph")
    monkeypatch.setattr("gistgnn.evaluation.inference.cluster", lambda *_: clusters)
    model = MODELS["graphsage"](3, (8,), 3).eval()
    stored = whole_graph(load(tmp_path / "graph"))
    with torch.no_grad():
        one, other = (
            Evaluation("parts", parts=7).prepare(model, batch).logits(model)
            for batch in (full_batch, stored)
        )
    assert torch.equal(one, other)
    with refused("parts is 5, but the folder of the graph has 7 clusters", "set parts to 7"):
        Evaluation("parts", parts=5).prepare(model, stored)


def product(folder: Path, scaled: bool = False) -> torch.Tensor:
    graph = load(folder)
    batch = whole_graph(Standardisation.of(graph).graph(graph) if scaled else graph)
    return batch.adj.aggregate("mean", batch.x)


def products(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("product-*.npy")}


def test_a_small_graph_is_one_batch_of_all_clusters(tmp_path: Path) -> None:
    make_clustered(some_graph(30, 90, 0), 6, tmp_path / "graph")
    graph = load(tmp_path / "graph")
    sampler = AutoSampling().sampler(whole_graph(graph), 0)
    assert sampler.steps_per_epoch == 1
    (batch,) = sampler.batches(0, 1)
    assert torch.equal(batch.x, graph.x)
    assert torch.equal(batch.edge_index, graph.edge_index)


def test_the_product_is_computed_once_and_anew_if_it_is_cut(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    same, _ = make_clustered(some_graph(300, 4000), 4, folder)
    with multiprocessing.get_context("fork").Pool(3) as pool:  # at the same time
        first, *later = pool.map(product, [folder] * 3, 1)
    assert all(torch.equal(first, other) for other in later)
    assert torch.equal(first, whole_graph(same).adj.aggregate("mean", same.x))
    ((name, made),) = products(folder).items()
    assert torch.equal(product(folder), first)
    assert products(folder) == {name: made}
    os.truncate(folder / name, 200)
    assert torch.equal(product(folder), first)
    assert products(folder).keys() == {name}
    assert not torch.equal(product(folder, scaled=True), first)
    assert len(products(folder)) == 2
